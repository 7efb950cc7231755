-- breaks older: no
-- Replaced by functions that return more columns.
drop function if exists mbus._accept(integer, mbus.parcel, timestamptz, text);
drop function if exists mbus._reserved(mbus.queue, text);
