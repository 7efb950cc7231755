-- The message that a key (header unique_key) stands for while it is pending.
create table mbus.unique_key (
  queue_id integer not null,
  key      text not null,
  number   bigint not null,
  expires  timestamptz,
  constraint key_is_of_one_message primary key (queue_id, key)
) with (fillfactor = 80);
