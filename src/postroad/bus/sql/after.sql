-- The functions of queues are granted to these roles.
select mbus._create_role(mbus._role(suffix), false) from unnest('{caller,admin,user}'::text[]) suffix;
-- Regenerates the functions of existing queues from the templates just installed, and rebuilds their views and missing indexes.
select mbus._generate(q), mbus._rebuild_views(q), mbus._index_keys(q) from mbus.queue q;
-- Messages that died before the column existed.
update mbus.dmq set fingerprint = mbus._fingerprint(error) where fingerprint is null;
-- mbus_<db>_caller may use the dispatchers, and every role of the bus is a member of it; mbus_<db>_admin may call every public function.
-- Permission to post to or consume from a queue is granted per queue.  Functions are granted before the views are replaced and so locked.
do $grants$
declare
  v_grant text;
  -- Called by the views: functions of a view run with the permissions of its user.
  v_for_views constant text[] := '{_ready,_set_aside,_leased,_claimed,_rates,_slot_exists,_log_name,_cell,_bounds,_quantile,_limited_by}';
  v_for_caller constant text[] := '{post,consume,take,get_iid,ack,ackn,nack,extend,extendn,releasen,reject,give_back,is_restored,notify,
    positions,maintain,measure,now,create_temporary_queue,create_temporary_consumer,consume_temporary,consume_temporary_jsonb,
    consume_temporary_text,consume_temporary_bytea,clear_tempq,request,trace_headers,trace_headers_of,follow_trace,reply_queue,replies,reply,
    replyn_hstore,replyn_jsonb,replyn_text,replyn_bytea,dyn_consume,create_saga,cancel_saga,abort_saga,schedule,unschedule,report_worker,
    pause_schedule,resume_schedule,run_now,next_run,_check_post,_check_dispatch,_is_temporary,_check_temporary_consumer,_post_temporary,_ask,
    _longest,_check_interval,_type_of,_show,_claim,_claim_ready,_select,_check_statement,_read,_refuse_payload}';
begin
  if exists (select from pg_roles where rolname = mbus._role('admin')) then
    execute format('grant usage on schema mbus to %I', mbus._role('caller'));
    for v_grant in
      select format('grant execute on function %s to %I', p.oid::regprocedure, mbus._role(g.suffix))
      from pg_proc p cross join lateral (values
        ('user', p.proname = any (v_for_views)), ('admin', p.proname not like '\_%' or p.proname = any (v_for_views)),
        ('caller', p.proname = any (v_for_caller))) g(suffix, is_granted)
      where p.pronamespace = 'mbus'::regnamespace and g.is_granted
        and not exists (select from aclexplode(p.proacl) a where a.privilege_type = 'EXECUTE' and a.grantee = to_regrole(quote_ident(mbus._role(g.suffix))))
    loop
      execute v_grant;
    end loop;
  end if;
end $grants$;
