-- The readers of the Coordinator.
create or replace view coordination.readers as
select r.name as reader, r.is_voter, r.finished_to,
  (select count(*) from coordination."WriterEvent" e where e."FinishedAt" is null and e."Position" > r.finished_to) as behind,
  (select min(e."Date") from coordination."WriterEvent" e where e."FinishedAt" is null and e."Position" > r.finished_to) as oldest_at,
  (select count(*) from coordination.reader_event x where x.reader = r.name and x.is_parked) as parked,
  r.joined_at, r.heard_at
from coordination.reader r;
