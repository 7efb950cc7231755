-- breaks older: no
-- Has another name now.
drop function if exists bridge._turn(interval);
