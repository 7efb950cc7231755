-- breaks older: no
-- creates: tables/unique_key.sql
-- Replaced by a function that names a column differently.
drop function if exists mbus._accept(integer, mbus.parcel, timestamptz, text), mbus._is_first(integer, mbus.parcel);
