create or replace view mbus.saga_list as
select g.id, g.name as saga, g.state, c.steps, c.done, coalesce(coalesce(g.finished_at, t.now) > g.deadline, false) as is_late,
       g.created_at, g.finished_at, g.deadline, g.error
from mbus.saga g
-- A volatile function among the columns would keep the planner from reading only the rows that a LIMIT asks for.
cross join (select mbus.now() as now offset 0) t
cross join lateral (
  select count(*) as steps, count(*) filter (where s.state in ('done', 'compensating', 'parked')) as done
  from mbus.saga_step s where s.saga_id = g.id) c;
comment on view mbus.saga_list is 'Every saga in one row; done counts the steps that were done and are not compensated.';
