coalesce(g.origin, g.id), g.added, '{queue}.' || coalesce(g.origin, g.id) || '@{node}',
               (g.trail ->> 'delayed_until')::timestamptz, g.expires, null::integer[],
               mbus._deliver({constants}::hstore, g.added, g.headers, g.trail), g.properties, g.data