-- Bodies without quotes are bound when they are created: no search_path to pin, and the planner may inline them.

-- Where a message has been.  `seenby` names databases, as the bus keeps it; two servers may have databases of the
-- same name, so the bridge keeps `seenby_nodes` besides: 'database@node' of each database that passed it on.

-- The headers of a message on its way out: who passed it on, and what it was called when it was first posted.
-- What was true only here stays here: waiting for other messages is over, attempts start anew.
create or replace function bridge._outgoing(p_headers hstore, p_iid text, p_here text) returns hstore
language sql immutable parallel safe
return (p_headers - '{destination,attempts,consume_after,consume_after_lost}'::text[])
      || hstore(array['source_iid', coalesce(p_headers -> 'source_iid', p_iid), 'seenby_nodes',
           case when p_headers ? 'seenby_nodes' then ((p_headers -> 'seenby_nodes')::text[] || p_here)::text
                else '{"' || replace(replace(p_here, '\', '\\'), '"', '\"') || '"}' end]);

-- What a message was called when it was first posted, unique among all databases: its iid and the name of its database.
-- The node in the iid is not enough, because databases made from one template share it.
create or replace function bridge._origin_id(p_headers hstore, p_iid text) returns text
language sql stable parallel safe
return case when p_headers ? 'seenby_nodes'
    then coalesce(p_headers -> 'source_iid', p_iid) || '/' || substring(((p_headers -> 'seenby_nodes')::text[])[1] from '^(.*)@')
    else p_iid || '/' || current_database() end;

-- Whether a message has been in a database before.  A name in `seenby` counts unless `seenby_nodes` tells that another
-- database of that name is meant.
create or replace function bridge._has_seen(p_headers hstore, p_database text, p_node text) returns boolean
language sql immutable parallel safe
return p_database || '@' || p_node = any ((p_headers -> 'seenby_nodes')::text[])
      or p_database = any ((p_headers -> 'seenby')::text[])
         and not exists (select from unnest((p_headers -> 'seenby_nodes')::text[]) n
                         where n like replace(replace(p_database, '\', '\\'), '_', '\_') || '@%');

create or replace function bridge._here() returns text
language sql stable set search_path from current as $$
  select current_database() || '@' || name from mbus.node where is_only
$$;
