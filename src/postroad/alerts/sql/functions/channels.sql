-- Register the channels of the settings; all others become inactive.  Called by each sender at its start.
-- Arrays of equal length: names, kinds, least severities.  Errors: MA001.
create or replace function alerts.set_channels(p_names text[], p_kinds text[], p_severities text[]) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform alerts._rank(u.severity) from unnest(p_severities) u (severity);
  insert into alerts.channel as c (name, kind, least_severity, added_at)
  select u.name, u.kind, u.severity, alerts.now()
  from unnest(p_names, p_kinds, p_severities) u (name, kind, severity)
  order by u.name
  on conflict (name) do update
  set kind = excluded.kind, least_severity = excluded.least_severity, is_active = true;
  update alerts.channel c set is_active = false where c.name <> all (p_names) and c.is_active;
end $$;

-- The channels with their waiting notices, the last success and the last error.
create or replace function alerts.channels()
returns table (name text, kind text, least_severity text, is_active boolean, waiting bigint, given_up bigint,
               sent bigint, last_sent_at timestamptz, failing_since timestamptz, error text)
language sql stable security definer set search_path from current as $$
  select c.name, c.kind, c.least_severity, c.is_active,
         count(n.id) filter (where n.state in ('waiting', 'sending')), count(n.id) filter (where n.state = 'given_up'),
         count(n.id) filter (where n.state = 'sent'), max(n.sent_at),
         min(n.created_at) filter (where n.state in ('waiting', 'sending') and n.error is not null),
         (array_agg(n.error order by n.id) filter (where n.state in ('waiting', 'sending') and n.error is not null))[1]
  from alerts.channel c left join alerts.notice n on n.channel = c.name
  group by c.name order by c.name
$$;
