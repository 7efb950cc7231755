-- breaks older: no
drop function if exists intake._note(bigint[], text, text);
