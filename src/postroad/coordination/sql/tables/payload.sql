-- The changed rows of an event: both images as JSON, with the columns that are present only.  Rows that one statement changed share a
-- row here, up to a thousand: then the images are arrays.  The view payload_row has one row for each changed row; the views
-- "AppEventPayload", "AppEventCommitFor…" and "AppEventRollbackFor…" show them as the seed names them.
-- No foreign key to the event: it would be asked once per row, and rows come and go with their event only.
create table coordination.payload (
  event_id bigint not null,
  -- Of the first changed row.
  sequence integer not null,
  -- Drawn when the rows are changed, so it also is the version of the first of them; the others count on from it.
  id       bigint not null,
  type_id  integer not null,
  after    json,
  before   json,
  -- The columns that an update changed: at a Reader as the Writer sent them, at the Writer only where `before` was rewritten since.
  changed  text[],
  -- How many changed rows; null: one, whose images are objects.
  count    integer,
  constraint payload_is_numbered_in_its_event primary key (event_id, sequence)
);
-- Compressing arrays of images would take longer than writing them.
alter table coordination.payload alter column after set storage external, alter column before set storage external;
create sequence coordination.payload_id increment by 1000;
-- The payloads of a page: what they are, and their images as JSON arrays, before-images of updates only.
create type coordination.page as (rows jsonb, afters text[], befores text[]);
