-- breaks older: no
alter table mbus.nudge add column holders text[];
drop function if exists mbus._await(bigint, mbus.queue, bigint);
