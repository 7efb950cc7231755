-- breaks older: no
-- creates: tables/dropped_queue.sql
-- Replaced by functions with another signature.
drop function if exists mbus._take_number(integer, integer, bigint);
drop function if exists mbus._take_waiting(integer, integer, bigint);
drop function if exists mbus._check_holders(text[], bigint[]);
