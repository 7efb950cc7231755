-- A lane is the order of one sender in one database: its last sequence number, and how many of these were replies.
create table exchange.lane (
  database_id text not null references exchange.database (id),
  sender      text not null,
  sequence    bigint not null,
  replies     bigint not null default 0,
  primary key (database_id, sender)
) with (fillfactor = 50);
