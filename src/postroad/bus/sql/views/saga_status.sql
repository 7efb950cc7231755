create or replace view mbus.saga_status as
select g.id as saga_id, g.name as saga, g.state,
       s.name as step, s.position, s.after,
       case when s.state = 'waiting' and g.cancelled_at is null and not exists (
              select from mbus.saga_step b where b.saga_id = s.saga_id and b.name = any (s.after) and b.state <> 'done')
            then 'ready' else s.state end as step_state,
       s.name is not distinct from g.pivot as is_pivot,
       d.name as do_queue, mbus._iid(d.name, s.do_number) as do_iid,
       u.name as undo_queue, mbus._iid(u.name, s.undo_number) as undo_iid,
       s.attempts, s.undo_attempts, s.error as step_error, s.undo_error, s.done_at, s.undone_at,
       g.error, mbus._iid('sagas', g.bung_number) as bung, g.deadline,
       coalesce(coalesce(g.finished_at, mbus.now()) > g.deadline, false) as is_late,
       g.created_at, g.cancelled_at, g.finished_at
from mbus.saga g
join mbus.saga_step s on s.saga_id = g.id
left join mbus.queue d on d.id = s.do_queue_id
left join mbus.queue u on u.id = s.undo_queue_id;
comment on view mbus.saga_status is 'Every saga, step by step: states, times, attempts, errors.';
