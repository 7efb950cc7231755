-- The roles of this database, with its name in each.  A Writer and a Reader keep the same tables, so they never share a database.
create table coordination.node (
  role text primary key,
  name text not null,
  constraint role_is_known check (role in ('writer', 'coordinator', 'reader')),
  constraint name_fits_a_consumer check (name ~ '^[a-z][a-z0-9_]{0,11}$')
);
create unique index node_writer_or_reader_idx on coordination.node ((role in ('writer', 'reader')))
  where role in ('writer', 'reader');
