coalesce(g.origin, g.id), g.added, '{queue}.' || coalesce(g.origin, g.id) || '@{node}',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               case when g.headers is not null or g.trail is not null then mbus._deliver({constants}::hstore, g.added, g.headers, g.trail) end,
               g.properties, g.data, {constants}::text