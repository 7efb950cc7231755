-- breaks older: no
-- Lists are read from the views of views/lists.sql.  The functions databases_shown, clients_shown, processes_shown and
-- messages_shown stay where they are installed: processes of the version before call them until they are replaced.
select;
