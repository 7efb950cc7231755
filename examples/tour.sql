-- A tour: a room, two flights that depend on the room, a transfer for each flight.  Either all of it is booked, or
-- whatever was booked is cancelled.
--
--   psql -X -v ON_ERROR_STOP=1 -f examples/tour.sql "$POSTROAD_DATABASE_URL"
--
-- First by hand, with nothing but get_iid, post, consume_after and take; then the same with mbus.create_saga.
\set QUIET on
\pset tuples_only on
\pset format unaligned
set client_min_messages = warning;

select mbus.create_queue(q) from unnest(array[
  'rooms_reservations', 'book_tickets', 'transfer_to', 'transfer_from', 'end_of_tour_reservation',
  'bungs', 'cancel_room_reservations', 'cancel_ticket_booking_to', 'cancel_ticket_booking_from',
  'cancel_transfer_to', 'cancel_transfer_from', 'cancel_completed']) q \g /dev/null

-- What the handlers know of a tour.
create table tour (tour_id bigint generated always as identity, state text not null default 'being booked', booked text[] not null default '{}');

\echo == by hand
-- forward transactions and their compensations, posted in one transaction
create function start_tour() returns bigint language plpgsql as $$
declare
  bung_iid  constant text := mbus.get_iid('bungs');
  final_iid constant text := mbus.get_iid('end_of_tour_reservation');
  v_tour_id bigint;
  room_resvr text; book_ticket_to text; book_ticket_from text; transf_to text; transf_from text;
  cancel_room_resvr text; cancel_ticket_booking_to text; cancel_ticket_booking_from text;
  cancel_transfer_to text; cancel_transfer_from text; cancel_completed text;
begin
  insert into tour default values returning tour_id into v_tour_id;

  room_resvr := mbus.post('rooms_reservations', hstore('tour_id', v_tour_id::text), headers => hstore('bung', bung_iid));
  book_ticket_to := mbus.post('book_tickets', hstore('tour_id', v_tour_id::text) || 'way=>to',
    headers => hstore('bung', bung_iid) || hstore('consume_after', array[room_resvr]::text));
  book_ticket_from := mbus.post('book_tickets', hstore('tour_id', v_tour_id::text) || 'way=>from',
    headers => hstore('bung', bung_iid) || hstore('consume_after', array[room_resvr]::text));
  transf_to := mbus.post('transfer_to', hstore('tour_id', v_tour_id::text),
    headers => hstore('bung', bung_iid) || hstore('consume_after', array[book_ticket_to]::text));
  transf_from := mbus.post('transfer_from', hstore('tour_id', v_tour_id::text),
    headers => hstore('bung', bung_iid) || hstore('consume_after', array[book_ticket_from]::text));

  -- compensation transactions: they wait for the bung
  cancel_room_resvr := mbus.post('cancel_room_reservations', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after', bung_iid));
  cancel_ticket_booking_to := mbus.post('cancel_ticket_booking_to', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after', bung_iid));
  cancel_ticket_booking_from := mbus.post('cancel_ticket_booking_from', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after', bung_iid));
  cancel_transfer_to := mbus.post('cancel_transfer_to', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after', bung_iid));
  cancel_transfer_from := mbus.post('cancel_transfer_from', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after', bung_iid));
  cancel_completed := mbus.post('cancel_completed', hstore('tour_id', v_tour_id::text), headers => hstore('consume_after',
    array[cancel_room_resvr, cancel_ticket_booking_to, cancel_ticket_booking_from, cancel_transfer_to, cancel_transfer_from]::text));
  perform mbus.post('bungs', hstore('id_to_take',
    array[room_resvr, book_ticket_to, book_ticket_from, transf_to, transf_from, final_iid]::text), iid => bung_iid);

  -- the end of the forward way
  perform mbus.post('end_of_tour_reservation', hstore('tour_id', v_tour_id::text) || hstore('id_to_take',
      array[cancel_room_resvr, cancel_ticket_booking_to, cancel_ticket_booking_from, cancel_transfer_to, cancel_transfer_from,
            cancel_completed, bung_iid]::text),
    headers => hstore('consume_after', array[transf_to, transf_from]::text), iid => final_iid);
  return v_tour_id;
end $$;

-- A handler that books: takes a message and notes what it booked.
create function book(qname text) returns text language sql as $$
  with message as (select * from mbus.consume(qname))
  update tour t set booked = t.booked || (qname || coalesce(' ' || (m.data -> 'way'), ''))
  from message m where t.tour_id = (m.data -> 'tour_id')::bigint returning qname
$$;

-- What the bung or the closing message tells to take away is taken away.
create function take_all(iids text) returns bigint language sql as $$
  select count(*) from unnest(iids::text[]) i(iid) cross join lateral mbus.take(i.iid)
$$;

-- The tour that succeeds.
select start_tour() as tour_id \gset
select book(q) from unnest('{rooms_reservations,book_tickets,book_tickets,transfer_to,transfer_from}'::text[]) q \g /dev/null
begin;
select data -> 'id_to_take' as id_to_take from mbus.consume('end_of_tour_reservation') \gset
select take_all(:'id_to_take') \g /dev/null
update tour set state = 'booked' where tour_id = :tour_id;
commit;
select state || ': ' || array_to_string(booked, ', ') from tour where tour_id = :tour_id;

-- The tour that fails: there is no flight home.
select start_tour() as tour_id \gset
select book(q) from unnest('{rooms_reservations,book_tickets}'::text[]) q \g /dev/null
begin;
select headers -> 'bung' as bung from mbus.consume('book_tickets') \gset
select data -> 'id_to_take' as id_to_take from mbus.take(:'bung') \gset
select take_all(:'id_to_take') \g /dev/null
update tour set state = 'being cancelled' where tour_id = :tour_id;
commit;
-- All compensations come, also those of what was never booked: the handler looks at the tour.
select count(*) from unnest('{cancel_room_reservations,cancel_ticket_booking_to,cancel_ticket_booking_from,cancel_transfer_to,cancel_transfer_from}'::text[]) q
cross join lateral mbus.consume(q) \g /dev/null
with message as (select * from mbus.consume('cancel_completed'))
update tour t set state = 'cancelled', booked = '{}' from message m where t.tour_id = (m.data -> 'tour_id')::bigint;
select state from tour where tour_id = :tour_id;
select 'left: ' || sum(depth + dmq) from mbus.status;

\echo == with create_saga
-- The same in one call.  Compensations come only for what was done, last first.
create function start_tour_saga(tour_id bigint) returns bigint language sql as $$
  select mbus.create_saga('tour', '[
    {"name": "room",          "do": "rooms_reservations", "undo": "cancel_room_reservations"},
    {"name": "ticket_to",     "do": "book_tickets",  "undo": "cancel_ticket_booking_to",   "after": ["room"]},
    {"name": "ticket_from",   "do": "book_tickets",  "undo": "cancel_ticket_booking_from", "after": ["room"]},
    {"name": "transfer_to",   "do": "transfer_to",   "undo": "cancel_transfer_to",         "after": ["ticket_to"]},
    {"name": "transfer_from", "do": "transfer_from", "undo": "cancel_transfer_from",       "after": ["ticket_from"]}]',
    data => jsonb_build_object('tour_id', tour_id), deadline => now() + interval '1 day',
    on_completed => 'end_of_tour_reservation', on_compensated => 'cancel_completed')
$$;

insert into tour default values returning tour_id \gset
select start_tour_saga(:tour_id) as saga \gset
select book(q) from unnest('{rooms_reservations,book_tickets,book_tickets,transfer_to,transfer_from}'::text[]) q \g /dev/null
with message as (select * from mbus.consume('end_of_tour_reservation'))
update tour t set state = 'booked' from message m where t.tour_id = (m.data -> 'tour_id')::bigint;
select state || ': ' || array_to_string(booked, ', ') from tour where tour_id = :tour_id;

insert into tour default values returning tour_id \gset
select start_tour_saga(:tour_id) as saga \gset
select book(q) from unnest('{rooms_reservations,book_tickets}'::text[]) q \g /dev/null
begin;
select headers -> 'bung' as bung from mbus.consume('book_tickets') \gset
select count(*) from mbus.take(:'bung') \g /dev/null
commit;
select step || ' ' || step_state from mbus.saga_status where saga_id = :saga order by position;
select 'compensates ' || (headers -> 'step') from mbus.consume('cancel_ticket_booking_to');
select 'compensates ' || (headers -> 'step') from mbus.consume('cancel_room_reservations');
with message as (select * from mbus.consume('cancel_completed'))
update tour t set state = 'cancelled', booked = '{}' from message m where t.tour_id = (m.data -> 'tour_id')::bigint;
select t.state || ', saga ' || s.state || ', ' || s.error from tour t, (select distinct state, error from mbus.saga_status where saga_id = :saga) s
where t.tour_id = :tour_id;
select 'left: ' || sum(depth + dmq) from mbus.status;
