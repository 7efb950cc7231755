-- breaks older: no
-- The audit is read as a list of the table, like every other list.
drop function if exists console.audit_page(bigint, integer, text);
drop function if exists console.audit_stretch(bigint);
