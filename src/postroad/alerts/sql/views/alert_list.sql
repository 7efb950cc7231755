-- The episodes with the channels that were notified.
create or replace view alerts.alert_list as
select a.id, a.key, a.room, a.severity, a.title, a.body, a.count, a.raised_at, a.last_at, a.cleared_at, a.acked_at, a.acked_by,
       array(select t.channel from alerts.told t where t.alert_id = a.id order by t.channel) as told
from alerts.alert a;
