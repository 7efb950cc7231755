-- breaks older: no
-- Has another name now.
drop function if exists alerts._tell(alerts.channel, bigint);
