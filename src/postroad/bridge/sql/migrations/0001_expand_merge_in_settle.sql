-- breaks older: no
drop function if exists bridge._merge(integer);
