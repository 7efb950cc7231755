-- breaks older: no
drop index intake.sightings_scan_idx;
