-- Bodies without quotes are bound when they are created: no search_path to pin, and the planner may inline them.

-- Names of a queue's tables; for its sequences see README.md.  `$` cannot occur in the name of a queue or a consumer.
--   qt$<queue>$<cell>             payload rows of a direct queue, deleted by its consumer
--   ql$<queue>$<cell>             payload rows of a fanout queue, a log
--   qc$<queue>$<consumer>$<cell>  the messages that one consumer of a fanout queue has not consumed
-- A cell is a slot of the ring in one lane: 0, 1, … in the normal lane, h0 and l0 in the others.
create or replace function mbus._cell(p_lane text, p_slot bigint) returns text
language sql immutable parallel safe
return case p_lane when 'normal' then '' when 'high' then 'h' when 'low' then 'l' end || p_slot;

create or replace function mbus._log_name(p_queue mbus.queue, p_lane text, p_slot bigint) returns text
language sql immutable parallel safe
return case (p_queue).mode when 'direct' then 'qt$' else 'ql$' end
    || (p_queue).name || '$' || mbus._cell(p_lane, p_slot);

-- The table that a consumer takes its messages from.
create or replace function mbus._ready_name(p_queue mbus.queue, p_consumer text, p_lane text, p_slot bigint) returns text
language sql immutable parallel safe
return case (p_queue).mode
    when 'direct' then mbus._log_name(p_queue, p_lane, p_slot)
    else 'qc$' || (p_queue).name || '$' || p_consumer || '$' || mbus._cell(p_lane, p_slot) end;

create or replace function mbus._figure(p_queue text, p_which text) returns bigint
language sql volatile
return pg_sequence_last_value(format('mbus.%I', 'qs$' || p_queue || '$' || p_which)::regclass);

create or replace function mbus._iid(p_queue text, p_number bigint) returns text
language sql stable parallel safe set search_path from current as $$
  select p_queue || '.' || p_number || '@' || name from mbus.node where is_only
$$;

-- The hint of a table: no row that can be taken has a smaller id, now or later.
create or replace function mbus._hint(p_ready_table text) returns bigint
language sql volatile
return pg_sequence_last_value(format('mbus.%I', p_ready_table || '$hint')::regclass);

-- The same for all rows, leased ones included.
create or replace function mbus._base(p_ready_table text) returns bigint
language sql volatile
return pg_sequence_last_value(format('mbus.%I', p_ready_table || '$base')::regclass);

create or replace function mbus._set_hints(p_ready_table text, p_hint bigint, p_base bigint) returns void
language sql volatile set search_path from current as $$
  select setval(format('mbus.%I', p_ready_table || '$hint')::regclass, p_hint), setval(format('mbus.%I', p_ready_table || '$base')::regclass, p_base)
$$;
