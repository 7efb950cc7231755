-- breaks older: no
-- Internal functions with one caller each, which contains them now; and one that takes the message now.
drop function if exists exchange._restore_delay(), exchange._park_refused(bigint), exchange._use_slots(bigint[], bigint[], bigint[]),
  exchange._bring_again(bigint, text), exchange._alert_parked(bigint);
