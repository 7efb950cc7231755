-- Gives back leased messages that their holder has not begun to process: they are ready again, and no attempt is counted.
-- Returns the iids whose lease had ended.
-- Errors: MB009 foreign iid, MB012 tokens, MB013 role.
create or replace function mbus.releasen(iids text[], tokens bigint[]) returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_held   record;
  v_parcel mbus.parcel;
  v_ended  text[] := '{}';
begin
  perform mbus._check_tokens(iids, tokens);
  for v_held in select u.iid, u.token from unnest(iids, tokens) with ordinality u(iid, token, place) order by u.place loop
    begin
      v_parcel := mbus._take_held(v_held.iid, v_held.token);
      v_parcel.trail := nullif(v_parcel.trail || jsonb_build_object('attempts', mbus._attempts(v_parcel.trail) - 1), '{"attempts": 0}');
      perform mbus._put_back(c.queue_id, c.id, v_parcel, '0') from mbus.consumer c where c.id = v_parcel.recipients[1];
    exception when sqlstate 'MB015' then
      v_ended := v_ended || v_held.iid;
    end;
  end loop;
  return v_ended;
end $$;
