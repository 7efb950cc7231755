-- The changed rows of an event: both images as JSON, with only the columns that are present.  Rows that one statement changed share a
-- row here, up to a thousand: then the images are arrays.  The view payload_row has one row for each changed row; the views
-- "AppEventPayload", "AppEventCommitFor…" and "AppEventRollbackFor…" show them as the seed names them.
-- There is no foreign key to the event: it would be checked once per row, and payloads are only inserted and deleted with their event.
create table coordination.payload (
  event_id bigint not null,
  -- The number of the first changed row.
  sequence integer not null,
  -- Drawn when the rows are changed, so it is also the version of the first row; the others follow it.
  id       bigint not null,
  type_id  integer not null,
  after    json,
  before   json,
  -- The columns that an update changed: at a Reader as the Writer sent them, at the Writer only where `before` was rewritten since.
  changed  text[],
  -- The number of changed rows; null: one, whose images are objects.
  count    integer,
  constraint payload_is_numbered_in_its_event primary key (event_id, sequence)
);
-- Compressing arrays of images would take longer than writing them.
alter table coordination.payload alter column after set storage external, alter column before set storage external;
create sequence coordination.payload_id increment by 1000;
-- The payloads of a page: their descriptions, and their images as JSON arrays, with before-images only for updates.
create type coordination.page as (rows jsonb, afters text[], befores text[]);
