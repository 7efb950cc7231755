-- breaks older: no
-- creates: tables/listings.sql
drop function if exists intake.promote(integer);
drop function if exists intake.see(integer, bigint, bytea[], text[], bigint[], bigint[], bytea[]);
