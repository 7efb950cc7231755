-- What a sender has sent to a database so far: its last sequence number.
create table exchange.lane (
  database_id text not null references exchange.database (id),
  sender      text not null,
  sequence    bigint not null,
  primary key (database_id, sender)
) with (fillfactor = 50);
