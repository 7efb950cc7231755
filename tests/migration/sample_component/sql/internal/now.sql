create or replace function sample.now() returns timestamptz language sql volatile
set search_path from current as $$ select clock_timestamp() $$;
