-- Records every change of a file's folder as a planned move, in the same transaction.  With an object store only the row changes, unless
-- the content is to be removed, or was missing and has to be found.
create or replace function exchange._plan() returns trigger
language plpgsql volatile set search_path from current as $$
begin
  insert into exchange.move as v (number, source) values (new.number, old.folder)
  on conflict on constraint move_pkey do update
  set source = excluded.source, version = excluded.version, planned_at = excluded.planned_at;
  return null;
end $$;

create or replace trigger plan_the_move after update of folder on exchange.message
for each row when (old.folder is distinct from new.folder and (new.object is null or new.folder is null or old.folder is null))
execute function exchange._plan();

-- A move as JSON for the server.
create or replace function exchange._move(p_message exchange.message, p_move exchange.move) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'number', p_message.number, 'database', p_message.database_id, 'name', p_message.file_name, 'folder', p_message.folder,
    'source', p_move.source, 'temporary', p_move.temporary, 'size', p_message.size, 'sha256', p_message.sha256,
    'media_type', p_message.media_type, 'process', p_message.process_id, 'state', p_message.state,
    'version', p_move.version, 'object', p_message.object)
$$;

-- The name of an object, if content was stored as one under this name; null: it is a temporary file.
create or replace function exchange._object(p_temporary text) returns text
language sql immutable parallel safe as $$ select case when starts_with(p_temporary, 'object-') then p_temporary end $$;

-- The planned moves of a process.
create or replace function exchange._moves(p_process text) returns jsonb
language sql stable set search_path from current as $$
  select coalesce(jsonb_agg(exchange._move(m, v) order by m.number), '[]')
  from exchange.message m join exchange.move v on v.number = m.number
  where m.process_id = p_process
$$;

-- The planned moves of one message.
create or replace function exchange._moves_of(p_number bigint) returns jsonb
language sql stable set search_path from current as $$
  select coalesce(jsonb_agg(exchange._move(m, v)), '[]')
  from exchange.message m join exchange.move v on v.number = m.number
  where m.number = p_number
$$;
