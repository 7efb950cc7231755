create or replace view bridge.outlets as
select o.name, o.queue, o.consumer, o.target, o.state, o.problem, o.problem_at, o.created_at from bridge.outlet o;
comment on view bridge.outlets is 'Where messages leave this database.';
