-- The readers of the Coordinator.
create or replace view coordination.readers as
select r.name as reader, r.is_voter, r.finished_to, w.behind, w.oldest_at,
  (select count(*) from coordination.reader_event x where x.reader = r.name and x.is_parked) as parked, r.joined_at, r.heard_at
from coordination.reader r
cross join lateral (
  select count(*) as behind, min(e."Date") as oldest_at
  from coordination."WriterEvent" e where e."FinishedAt" is null and e."Position" > r.finished_to) w;
