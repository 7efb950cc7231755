-- Bodies without quotes are bound when they are created: no search_path to pin, and the planner may inline them, unless they are declared
-- immutable and convert arrays to or from text, which is stable.

-- Which databases a message has passed.  The bus's header `seenby` names databases; two servers may have databases of the same name, so the
-- bridge also writes `seenby_nodes`:  'database@node' of each database that forwarded the message.

-- The databases that forwarded a message; null for one that was posted here.  Clients may write these headers: a value that no
-- bridge can have written (not a list, not an iid) is ignored, so that it does not block the messages behind it.
create or replace function bridge._journey(p_headers hstore) returns text[]
language sql stable parallel safe
return case when p_headers -> 'source_iid' ~ '^[^.@]{1,63}\.[0-9]{1,18}@[a-z0-9]{1,12}$'
       and p_headers -> 'seenby_nodes' ~ '^\{("([^"\\]|\\.)+"|[^",{}\\\s]+)(,("([^"\\]|\\.)+"|[^",{}\\\s]+))*\}$'
    then (p_headers -> 'seenby_nodes')::text[] end;

-- The headers of a message that leaves this database: the databases that forwarded it, and its first iid.  Headers that only apply here are
-- omitted: dependencies on other messages, and the number of attempts.
create or replace function bridge._outgoing(p_headers hstore, p_iid text, p_here text) returns hstore
language sql stable parallel safe
return (p_headers - '{destination,attempts,consume_after,consume_after_lost}'::text[])
      || case when p_headers ? 'seenby_nodes' and bridge._journey(p_headers) is not null
           then hstore('seenby_nodes', (bridge._journey(p_headers) || p_here)::text)
           else hstore(array['source_iid', p_iid, 'seenby_nodes',
                  '{"' || replace(replace(p_here, '\', '\\'), '"', '\"') || '"}']) end;

-- The first iid of a message with the name of its database, unique among all databases.
-- The node in the iid is not enough, because databases made from one template share it.
create or replace function bridge._origin_id(p_headers hstore, p_iid text) returns text
language sql stable parallel safe
return case when p_headers ? 'seenby_nodes' and bridge._journey(p_headers) is not null
    then (p_headers -> 'source_iid') || '/' || left(coalesce(substring((bridge._journey(p_headers))[1] from '^(.*)@'), '?'), 63)
    else p_iid || '/' || current_database() end;

-- Whether a message has been in a database before.  A name in `seenby` counts unless `seenby_nodes` names another
-- database of that name.  The bus takes no `seenby` that is not a list.
create or replace function bridge._has_seen(p_headers hstore, p_database text, p_node text) returns boolean
language sql immutable parallel safe
return p_database || '@' || p_node = any (bridge._journey(p_headers))
      or p_database = any ((p_headers -> 'seenby')::text[])
         and not exists (select from unnest(bridge._journey(p_headers)) n
                         where n like replace(replace(p_database, '\', '\\'), '_', '\_') || '@%');

create or replace function bridge._here() returns text
language sql stable set search_path from current as $$
  select current_database() || '@' || name from mbus.node where is_only
$$;
