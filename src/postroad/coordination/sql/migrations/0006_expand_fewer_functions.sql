-- breaks older: no
drop function if exists coordination._try(coordination.staging, jsonb);
drop function if exists coordination._apply_staged(bigint[], jsonb);
drop function if exists coordination._skip(coordination.staging);
drop function if exists coordination._close_applied(coordination.staging);
drop function if exists coordination._close(coordination.staging, text, text[]);
drop function if exists coordination._advance_one(coordination.staging, coordination.progress);
drop function if exists coordination._tell_events(jsonb[]);
drop function if exists coordination._tell_again(interval, timestamptz);
drop function if exists coordination._tell_decisions(bigint[], bigint[]);
drop function if exists coordination._tell_progress(jsonb);
drop function if exists coordination._apply_at_once(jsonb, bigint[], jsonb, text[]);
