-- breaks older: yes
-- The shards of a queue are named in the settings.
do $$
begin
  if exists (select from bridge.shard where state <> 'drained') then
    raise exception 'schema bridge lists shards, which are named in the settings now'
      using hint = 'Write each row of bridge.shard to the settings: bridge.shards.<logical>.<database> = <weight>, with 0 for one that'
        ' drains.  Then delete the rows and upgrade again.';
  end if;
end $$;
drop function if exists bridge.add_shard(text, text, text, integer), bridge.set_shard_state(text, text, text),
  bridge.remove_shard(text, text), bridge.enter(text), bridge.set_gate(text, boolean);
drop table bridge.shard, bridge.gate;
drop sequence bridge.shard_epoch;
