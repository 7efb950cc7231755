-- Adds a row to the history of each file.  Returns the ids, '{}' for null.
create or replace function intake._record(p_ids bigint[], p_status text, p_note text default null) returns bigint[]
language sql set search_path from current as $$
  insert into intake.file_history (file_id, at, status, note)
  select f, intake.now(), p_status, p_note from unnest(p_ids) f;
  select coalesce(p_ids, '{}');
$$;
