-- breaks older: no
drop function if exists coordination.track(text, text, text, text);
drop function if exists coordination._tell_rows(coordination.entity, bigint);
