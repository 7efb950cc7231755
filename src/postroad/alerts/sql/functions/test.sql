-- Write a test notice to a channel and return its id.  It is sent before waiting notices.  Errors: MA003.
create or replace function alerts.test(p_channel text, p_title text default 'Test of this channel') returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_now    constant timestamptz := alerts.now();
  v_notice bigint;
begin
  if not exists (select from alerts.channel c where c.name = p_channel and c.is_active) then
    raise exception 'there is no channel %', coalesce(quote_literal(p_channel), 'null')
      using errcode = 'MA003', hint = 'List the channels: postroad alerts channels';
  end if;
  insert into alerts.notice (channel, kind, items, created_at, due_at)
  values (p_channel, 'test', jsonb_build_array(jsonb_build_object(
            'what', 'raised', 'key', 'alerts/test', 'room', 'alerts', 'severity', 'info', 'title', p_title,
            'body', 'If you can read this, alerts reach you.', 'count', 1, 'raised_at', v_now, 'last_at', v_now,
            'cleared_at', null)), v_now, v_now)
  returning id into v_notice;
  return v_notice;
end $$;
