-- Adds a shard, or reactivates one that was draining.
create or replace function bridge.add_shard(p_logical text, p_name text, p_database text, p_weight integer default 1) returns void
language plpgsql security definer set search_path from current as $$
begin
  insert into bridge.shard as s (logical, name, database, weight) values (p_logical, p_name, p_database, p_weight)
  on conflict (logical, name) do update
    set database = excluded.database, weight = excluded.weight, state = 'active', changed_at = bridge.now();
  perform nextval('bridge.shard_epoch');
end $$;

-- Sets the state of a shard: active, draining (consumed, no posts) or drained (neither).  Errors: MR001, MR003.
create or replace function bridge.set_shard_state(p_logical text, p_name text, p_state text) returns void
language plpgsql security definer set search_path from current as $$
begin
  if p_state not in ('active', 'draining', 'drained') then
    raise exception 'unknown state: "%"', p_state using errcode = 'MR003', hint = 'Use active, draining or drained.';
  end if;
  update bridge.shard s set state = p_state, changed_at = bridge.now() where s.logical = p_logical and s.name = p_name;
  if not found then
    raise exception 'logical queue "%" has no shard "%"', p_logical, p_name
      using errcode = 'MR001', hint = 'See postroad bridge shards list.';
  end if;
  perform nextval('bridge.shard_epoch');
end $$;

create or replace function bridge.remove_shard(p_logical text, p_name text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  delete from bridge.shard s where s.logical = p_logical and s.name = p_name;
  perform nextval('bridge.shard_epoch');
  return found;
end $$;

-- In the database of a shard, before a post in the same transaction: true when it takes posts.
create or replace function bridge.enter(p_logical text) returns boolean
language plpgsql volatile security definer set search_path from current as $$
begin
  perform pg_advisory_xact_lock_shared(hashtext('bridge.gate'), hashtext(p_logical));
  -- A statement of its own, so that it sees the commit of the last holder of the lock.
  return coalesce((select g.is_open from bridge.gate g where g.logical = p_logical), false);
end $$;

-- Opens or closes the gate; closing waits for the posts that are inside.
create or replace function bridge.set_gate(p_logical text, p_is_open boolean) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('bridge.gate'), hashtext(p_logical));
  insert into bridge.gate as g (logical, is_open) values (p_logical, p_is_open)
  on conflict (logical) do update set is_open = excluded.is_open where g.is_open <> excluded.is_open;
end $$;
