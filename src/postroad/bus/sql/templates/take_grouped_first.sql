  -- Only the first message of each group is taken, and none while this consumer holds another message of that group.
  -- Locks: an advisory lock per group (consumer id, hash of the group), without waiting, then the rows.  A group is locked in one
  -- statement, checked in the next and its row deleted later: their snapshots include the work of the last holder of the group.  Retries
  -- of a group come first, because they are older than any message of the group on the ring.
  v_retries := array(select p from mbus._take_group_retries({queue_id}, {consumer_id}, amt) p);
  v_missing := amt - cardinality(v_retries);
  if v_missing < amt then
    -- Locks storage of the consumer, which nothing below may touch: drop_consumer waits for this transaction.
    perform pg_sequence_last_value('mbus.{hint}');
  end if;
{note_retries}  v_seen := array(select r.headers -> 'group' from unnest(v_retries) r);
  return query
  select {output}
  from (select r.number as id, null::bigint as origin, r.added, r.expires, r.headers, r.properties, r.trail,
               r.{data} as data from unnest(v_retries) r) g
  order by g.id;
