-- breaks older: no
-- Replaced by one function for text and all other payloads, which the same calls reach, and by internal functions that do the same.
drop function if exists mbus.post(text, text, hstore, hstore, timestamptz, timestamptz, text),
  mbus.post(text, anyelement, hstore, hstore, timestamptz, timestamptz, text),
  mbus.request(text, text, hstore, hstore, interval, text), mbus.request(text, anyelement, hstore, hstore, interval, text),
  mbus.reply(hstore, text, hstore, hstore), mbus.reply(hstore, anyelement, hstore, hstore),
  mbus._check_unique(mbus.parcel, timestamptz), mbus._check_named(text), mbus._held_open(integer), mbus._held_leased(integer);
