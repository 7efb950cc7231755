-- breaks older: no
-- Replaced by one function for all payloads but text, and by internal functions of other names.
drop function if exists mbus.reply(hstore, hstore, hstore, hstore);
drop function if exists mbus.reply(hstore, jsonb, hstore, hstore);
drop function if exists mbus.reply(hstore, bytea, hstore, hstore);
drop function if exists mbus._answer(hstore, hstore, hstore, hstore, jsonb, text, bytea);
drop function if exists mbus._reply(hstore[], mbus.parcel[]), mbus._check_answers(integer, integer);
drop function if exists mbus._check_temporary(text, text), mbus._put(integer, mbus.parcel);
drop function if exists mbus._parcel(mbus.blocked), mbus._parcel(mbus.leased);
drop function if exists mbus._add_lane(integer, text), mbus._add_groups(integer), mbus._add_waiters(integer), mbus._add_followers(integer);
drop function if exists mbus._go_on_from_dropped(mbus.queue), mbus._remember_position(mbus.queue), mbus._open_posts(mbus.queue);
drop function if exists mbus._settled_mark(mbus.queue, jsonb, jsonb), mbus._first_lease_end();
drop function if exists mbus._saga_retention(), mbus._saga_tell(mbus.saga_step), mbus._saga_number_closings(mbus.saga, text, text);
