-- Notes what happened to files, one row each.
create or replace function intake._note(p_file_ids bigint[], p_status text, p_note text) returns void
language sql set search_path from current as $$
  insert into intake.file_history (file_id, at, status, note)
  select f, intake.now(), p_status, p_note from unnest(p_file_ids) f;
$$;
