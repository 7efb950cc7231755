-- The files of a process, and their results.
create table exchange.process_file (
  process_id  text not null references exchange.process (id) on delete cascade,
  position    integer not null,
  number      bigint not null,
  is_refused  boolean not null default false,
  result      text constraint result_is_known check (result in ('PROCESSED', 'DEFERRED', 'INCORRECT')),
  error       text,
  delay       double precision,
  primary key (process_id, position)
);
create index process_file_of_a_message_idx on exchange.process_file (number);
