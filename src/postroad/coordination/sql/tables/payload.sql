-- One row per changed row of an entity: both images as JSON, with the columns that are present only.
-- The view "AppEventPayload" and the views "AppEventCommitFor…", "AppEventRollbackFor…" show it as the seed names it.
-- No foreign key to the event: it would be asked once per row, and rows come and go with their event only.
create table coordination.payload (
  event_id bigint not null,
  sequence integer not null,
  -- Drawn when the row is changed, so it also is the version of that row.
  id       bigint not null,
  type_id  integer not null,
  after    json,
  before   json,
  -- The columns that an update changed: at a Reader as the Writer sent them, at the Writer only where `before` was rewritten since.
  changed  text[],
  constraint payload_is_numbered_in_its_event primary key (event_id, sequence)
);
create sequence coordination.payload_id;
