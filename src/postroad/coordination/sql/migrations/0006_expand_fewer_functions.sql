-- breaks older: no
drop function if exists coordination._try(coordination.staging, jsonb);
drop function if exists coordination._apply_staged(bigint[], jsonb);
drop function if exists coordination._skip(coordination.staging);
drop function if exists coordination._close_applied(coordination.staging);
drop function if exists coordination._close(coordination.staging, text, text[]);
