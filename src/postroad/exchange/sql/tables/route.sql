-- A route between the bus and the mailboxes: `in` puts messages of the queue into a database's mailbox,
-- `out` posts replies to a recipient to the queue.
create table exchange.route (
  id          text primary key,
  direction   text not null constraint direction_is_known check (direction in ('in', 'out')),
  queue       text not null,
  database_id text,
  recipient   text,
  created_at  timestamptz not null default clock_timestamp(),
  constraint route_knows_where_to check (case direction when 'in' then database_id is not null else recipient is not null end)
);
