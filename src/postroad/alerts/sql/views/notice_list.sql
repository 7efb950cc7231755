-- The notices, each with its attempts.
create or replace view alerts.notice_list as
select n.id, n.channel, n.kind, n.state, n.items, n.attempts, n.created_at, n.due_at, n.sent_at, n.error,
       coalesce((select jsonb_agg(jsonb_build_object(
          'sender', t.sender, 'started_at', t.started_at, 'ended_at', t.ended_at, 'outcome', t.outcome,
          'error', t.error) order by t.id)
        from alerts.attempt t where t.notice_id = n.id), '[]') as tries
from alerts.notice n;
