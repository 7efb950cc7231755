select count(*) into v_count from (select from {rows} limit 2) r;
    if v_count = 1 then
      -- The usual case; a row whose key was changed counts as two.
      insert into coordination.payload (event_id, sequence, id, type_id, count, after, before)
      select v_current.v_event, v_current.v_from + row_number() over ({order}), nextval('coordination.payload_id'), c.type_id, 1,
        json_build_array(c.after), case when c.type_id <> {insert} then json_build_array(c.before) end
      from ({source}) c;
      get diagnostics v_count = row_count;
    else
      with packed as (
        insert into coordination.payload (event_id, sequence, id, type_id, count, after, before)
        select v_current.v_event, v_current.v_from + min(s.place), nextval('coordination.payload_id'), s.type_id, count(*), json_agg(s.after),
          case when s.type_id <> {insert} then json_agg(s.before) end
        from (
          select c.*, row_number() over w as place, sum(pg_column_size(c.after) + coalesce(pg_column_size(c.before), 0)) over w as bytes
          from ({source} offset 0) c window w as ({order} rows unbounded preceding)) s
        group by s.type_id, (s.place - 1) / 1000, s.bytes / 4000000 returning count)
      select sum(p.count) into v_count from packed p;
    end if
