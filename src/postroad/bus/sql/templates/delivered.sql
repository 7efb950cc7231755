m.id, m.added, m.iid, m.delayed_until, m.expires, m.received,
         coalesce(m.headers, m.constants::hstore || hstore('enqueue_time', m.added::text)), m.properties, m.data