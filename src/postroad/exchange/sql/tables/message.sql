-- A message or a reply: one file.  `folder` is where the file belongs; null: it was removed, or it is missing.
-- In Error or nowhere while its process is open, or done: its file was found to be bad, and is in quarantine.
create table exchange.message (
  number       bigint generated always as identity primary key,
  database_id  text not null references exchange.database (id),
  kind         text not null constraint kind_is_known check (kind in ('message', 'reply')),
  sender       text not null,
  id           text not null,
  name         text not null,
  sequence     bigint not null,
  recipient    text not null default '',
  -- Its slot among those of all senders (see exchange._pick), where that is no longer its number.
  turn         bigint,
  order_number bigint,
  rank         bigint not null generated always as (coalesce(order_number, 9223372036854775807)) stored,
  state        text not null constraint message_state_is_known check (state in (
                 'queued', 'leased', 'deferred', 'parked', 'unknown', 'done',
                 'uploaded', 'prepared', 'waiting', 'discarded')),
  reply_to     text,
  file_name    text not null,
  size         bigint not null,
  sha256       text not null,
  digest       text not null,
  media_type   text,
  is_group     boolean not null default false,
  folder       text constraint folder_is_known check (folder in ('Messages', 'Prepared', 'Log', 'Unknown', 'Error')),
  process_id   text,
  failures     integer not null default 0,
  expiries     integer not null default 0,
  available_at double precision,
  error        text,
  -- Parked only because of its file: it can be handed out again when the file is restored.
  is_parked_by_file boolean not null default false,
  created_at   timestamptz not null default clock_timestamp(),
  finished_at  timestamptz,
  -- The trace of the request that delivered it.
  traceparent  text default nullif(current_setting('postroad.traceparent', true), ''),
  -- The name of its content in an object store, where only this row has the folder; null: a file in that folder.
  object       text
) with (fillfactor = 85);
create unique index message_id_is_one_senders_idx on exchange.message (sender, lower(id)) where kind = 'message';
create unique index reply_id_is_one_recipients_idx on exchange.message (recipient, lower(id))
  where kind = 'reply' and state <> 'discarded';
create index message_by_turn_idx on exchange.message (database_id, recipient, (coalesce(turn, number))) where state = 'queued';
create index message_of_a_sender_to_hand_out_idx on exchange.message (database_id, recipient, sender, rank, number)
  where state = 'queued';
create index message_deferred_idx on exchange.message (database_id, available_at) where state = 'deferred';
create index message_parked_idx on exchange.message (database_id, sender) where state = 'parked';
create index reply_to_fetch_idx on exchange.message (recipient, number) where state = 'waiting';
create index message_of_a_process_idx on exchange.message (process_id) where process_id is not null;
create unique index object_is_one_messages_idx on exchange.message (object) where object is not null;
create index message_finished_idx on exchange.message (finished_at) where state in ('done', 'discarded');
-- For the search over all components.
create index message_by_id_idx on exchange.message (id);
create index message_by_file_name_idx on exchange.message (file_name);
create index message_by_trace_idx on exchange.message (substr(traceparent, 4, 32)) where traceparent is not null;
