-- The limits of a consumer, see mbus.limit_consumer.  The limits of others have no cost for a consumer without a row.
-- The sequence limit$<consumer id> is the time, in nanoseconds, up to which the rate is used up: it is not rolled back, so a take
-- holds no row that others wait for.
create table mbus.consumer_limit (
  consumer_id     integer primary key references mbus.consumer (id) on delete cascade,
  rate            double precision,
  burst           integer,
  concurrency     integer,
  key             text,
  key_rate        double precision,
  key_concurrency integer
);
-- The same time per key, for limits that have key_rate.
create table mbus.limited_key (
  consumer_id integer not null references mbus.consumer_limit (consumer_id) on delete cascade,
  key         text not null,
  used_until  bigint not null,
  primary key (consumer_id, key)
);
