-- The commit number of an event is drawn when its transaction begins to commit, not when it makes its changes:
-- a transaction that stays open for an hour is ordered after those that committed in the meantime.
create or replace function coordination._number_commit() returns trigger
language plpgsql security definer set search_path from current as $$
begin
  update coordination."AppEvent" e set "CommitNumber" = nextval('coordination.payload_id') where e."Id" = new."Id";
  -- Sent only if the publisher waits, because commits with a notice wait for each other.  A transaction with a notice cannot be prepared
  -- (PREPARE TRANSACTION), so if prepared transactions are in use the publisher polls.
  if pg_sequence_last_value('coordination.publisher_waits') = 2 and current_setting('max_prepared_transactions') = '0' then
    perform setval('coordination.publisher_waits', 1), pg_notify('coordination', 'captured');
  end if;
  return null;
end $$;

-- PostgreSQL runs a deferred constraint trigger at the commit; it cannot be replaced, so it is created once.
do $once$
begin
  if not exists (
    select from pg_trigger t where t.tgrelid = 'coordination."AppEvent"'::regclass and t.tgname = 'commit_is_numbered')
  then
    create constraint trigger commit_is_numbered after insert on coordination."AppEvent"
      deferrable initially deferred for each row when (new."Position" is null)
      execute function coordination._number_commit();
  end if;
end $once$;
