-- breaks older: no
-- The audit is read as a list of the table, like every other list.  The functions audit_page and audit_stretch stay where they are
-- installed: processes of the version before call them until they are replaced.
select;
