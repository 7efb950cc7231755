-- Returns the status from which the step of a status is repeated.
create or replace function intake._start_of(p_status text) returns text
language sql immutable set search_path from current as $$
  select case p_status when 'downloading' then 'discovered' when 'uploading_to_minio' then 'downloaded'
                       when 'notifying' then 'uploaded_to_minio' else p_status end;
$$;
