-- Nothing here is for everybody.  mbus_<db>_admin may do everything that is public, mbus_<db>_user may use the
-- dispatchers and look; what a user may post to or consume from is decided queue by queue.
-- Without the right to make roles there are none, and only the owner uses the bus.
do $grants$
declare
  v_function regprocedure;
  v_view     text;
  v_for_user constant text[] := '{post,consume,take,get_iid,ack,ackn,nack,extend,extendn,reject,notify,positions,maintain,now,
    create_temporary_queue,create_temporary_consumer,consume_temporary,consume_temporary_jsonb,consume_temporary_text,
    consume_temporary_bytea,clear_tempq,request,reply_queue,replies,reply,replyn,dyn_consume}';
begin
  perform mbus._create_role(mbus._role('admin'), false);
  perform mbus._create_role(mbus._role('user'), false);
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'mbus'::regnamespace
      and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
  if exists (select from pg_roles where rolname = mbus._role('admin')) then
    execute format('grant usage on schema mbus to %I, %I', mbus._role('admin'), mbus._role('user'));
    for v_function in
      select p.oid from pg_proc p where p.pronamespace = 'mbus'::regnamespace and p.proname not like '\_%'
    loop
      execute format('grant execute on function %s to %I', v_function, mbus._role('admin'));
    end loop;
    for v_function in
      select p.oid from pg_proc p where p.pronamespace = 'mbus'::regnamespace and p.proname = any (v_for_user)
         or p.pronamespace = 'mbus'::regnamespace and p.proname in ('_check_post', '_check_dispatch',
           '_is_temporary', '_post_temporary', '_ask', '_show', '_claim', '_claim_ready', '_select', '_check_statement')
         or p.pronamespace = 'mbus'::regnamespace and p.proname like '\_read\_%'
         or p.pronamespace = 'mbus'::regnamespace and p.proname = '_refuse_payload'
    loop
      execute format('grant execute on function %s to %I, %I', v_function, mbus._role('user'), mbus._role('admin'));
    end loop;
    foreach v_view in array '{queues,consumers,status,dead,followers}'::text[] loop
      execute format('grant select on mbus.%I to %I', v_view, mbus._role('admin'));
    end loop;
  end if;
end $grants$;
