-- Answers a request in the caller's transaction.  request is the headers of the message that is answered.  Returns the
-- iid of the answer, or null if it was dropped because the requester has gone or the timeout has passed.
-- Every user may answer to a temporary queue whose name they have; a request cannot make its handler post to another queue.
-- Errors: MB012 if the message is not a request.

create or replace function mbus.reply(
  request hstore, data anycompatible, headers hstore default null, properties hstore default null) returns text
language plpgsql security definer set search_path from current as $$
begin
  return (mbus._reply(array[request], array[data], headers, properties))[1];
end $$;

-- Sends many answers, one per request; the result contains null for each answer that was dropped.  headers and properties apply to all.
-- One function per payload, so that a client need not name the type.
create or replace function mbus.replyn_text(
  requests hstore[], data text[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  return mbus._reply(requests, data, headers, properties);
end $$;

-- Like mbus.replyn_text, for requests to queues that carry hstore.
create or replace function mbus.replyn_hstore(
  requests hstore[], data hstore[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  return mbus._reply(requests, data, headers, properties);
end $$;

-- Like mbus.replyn_text, for requests to queues that carry jsonb.
create or replace function mbus.replyn_jsonb(
  requests hstore[], data jsonb[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  return mbus._reply(requests, data, headers, properties);
end $$;

-- Like mbus.replyn_text, for requests to queues that carry bytea.
create or replace function mbus.replyn_bytea(
  requests hstore[], data bytea[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  return mbus._reply(requests, data, headers, properties);
end $$;
