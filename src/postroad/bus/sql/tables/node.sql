-- One row: the name of this bus among all that exchange messages.  It is the tail of every iid, so
-- that an iid is unique beyond this database.
create table mbus.node (
  is_only boolean primary key default true constraint there_is_one_node check (is_only),
  name    text not null constraint node_name_is_short check (name ~ '^[a-z0-9]{1,12}$'),
  -- Signs what maintenance leaves in its session, which the session's user could write as well.
  secret  text not null default gen_random_uuid()::text
);
insert into mbus.node (name)
select substr(replace(gen_random_uuid()::text, '-', ''), 1, 6);
