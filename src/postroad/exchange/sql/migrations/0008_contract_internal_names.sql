-- breaks older: no
-- Internal functions that have other names now.
drop function if exists exchange._tell_parked(bigint), exchange._tell_outcome(exchange.message),
  exchange._tell_corrupt(exchange.message, boolean), exchange._tell_contradiction(exchange.process, text, text),
  exchange._tell_restored(), exchange._use_turns(bigint[], bigint[], bigint[]);
-- exchange.restored_in has the body of the version before until the functions are replaced, in this transaction.
drop function if exists exchange._restored_stands();
