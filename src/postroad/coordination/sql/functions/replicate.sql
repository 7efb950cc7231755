-- Keeps a copy of the Writer's entity of that name in the table; only the Reader should write to it.
-- p_is_subset: columns of the Writer that the table lacks are left out instead of refused.  Called again after the table was altered.
-- Raises PC001 for an unknown table, PC003, PC004, PC006, PC007, PC010.
create or replace function coordination.replicate(p_table text, p_entity text default null, p_is_subset boolean default false)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_table  regclass := coordination._find_table(p_table);
  v_entity coordination.entity;
begin
  perform coordination._require('reader');
  perform coordination._lock(0);
  v_entity := coordination._register(v_table, coalesce(p_entity, (select c.relname from pg_class c where c.oid = v_table)), 'replica');
  update coordination.entity e set is_subset = p_is_subset where e.name = v_entity.name;
  return v_entity.name;
end $$;

-- Ignores an entity of the Writer at this Reader.  With false it is applied again from then on; a snapshot adds the changes that were
-- ignored.  Raises PC010.
create or replace function coordination.ignore(p_entity text, p_is_ignored boolean default true) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._require('reader');
  update coordination.progress p set ignored = array_remove(p.ignored, p_entity)
    || case when p_is_ignored then array[p_entity] else '{}' end;
end $$;
