-- breaks older: no
create table mbus.consumer_limit (
  consumer_id     integer primary key references mbus.consumer (id) on delete cascade,
  rate            double precision,
  burst           integer,
  concurrency     integer,
  key             text,
  key_rate        double precision,
  key_concurrency integer
);
create table mbus.limited_key (
  consumer_id integer not null references mbus.consumer_limit (consumer_id) on delete cascade,
  key         text not null,
  used_until  bigint not null,
  primary key (consumer_id, key)
);
