-- breaks older: no
-- Replaced by one function for all payloads but text.
drop function if exists mbus.post(text, hstore, hstore, hstore, timestamptz, timestamptz, text);
drop function if exists mbus.post(text, jsonb, hstore, hstore, timestamptz, timestamptz, text);
drop function if exists mbus.post(text, bytea, hstore, hstore, timestamptz, timestamptz, text);
drop function if exists mbus.request(text, hstore, hstore, hstore, interval, text);
drop function if exists mbus.request(text, jsonb, hstore, hstore, interval, text);
drop function if exists mbus.request(text, bytea, hstore, hstore, interval, text);
drop function if exists mbus._post_temporary(
  text, text, hstore, jsonb, text, bytea, hstore, hstore, timestamptz, timestamptz, text);
