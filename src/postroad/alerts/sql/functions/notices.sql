-- The notices, the latest first, each with its attempts.  p_channel null: all.
create or replace function alerts.notices(p_channel text default null, p_limit integer default 100)
returns table (id bigint, channel text, kind text, state text, items jsonb, attempts integer, created_at timestamptz,
               due_at timestamptz, sent_at timestamptz, error text, tries jsonb)
language sql stable security definer set search_path from current as $$
  select n.* from alerts.notice_list n where n.channel = p_channel or p_channel is null order by n.id desc limit p_limit
$$;

-- Makes a waiting or given-up notice due now.  Returns whether it will be tried.
create or replace function alerts.retry(p_notice bigint) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  update alerts.notice n set state = 'waiting', due_at = alerts.now()
  where n.id = p_notice and n.state in ('waiting', 'given_up');
  return found;
end $$;
