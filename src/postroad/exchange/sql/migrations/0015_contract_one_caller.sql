-- breaks older: no
-- Internal functions with one caller each, which contains them now; and one that takes the message now.
drop function if exists exchange._restore_delay(), exchange._park_refused(bigint), exchange._use_slots(bigint[], bigint[], bigint[]),
  exchange._bring_again(bigint, text), exchange._doubt(exchange.process, text), exchange._alert_restored(), exchange._alert_parked(bigint),
  exchange._address_reply(text, text, text);
