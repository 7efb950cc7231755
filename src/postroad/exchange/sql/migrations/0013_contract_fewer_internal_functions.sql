-- breaks older: no
-- Internal functions with one caller each, which contains them now.
drop function if exists exchange._note_all(exchange.process[], text, text), exchange._event(exchange.process, timestamptz, text, text),
  exchange._settle(exchange.process, text, double precision, text, text), exchange._suspect_restored(exchange.database, bigint);
