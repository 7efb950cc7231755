-- breaks older: no
drop function if exists coordination._advance(integer), coordination._advance_one(coordination.staging, coordination.progress),
  coordination._postpone(coordination.staging, text, bigint), coordination._fail(coordination.staging, coordination.progress, text),
  coordination._copied(), coordination._restore_steps(text[]), coordination._related(text[]), coordination._key_columns(regclass),
  coordination._is_table_of(coordination.entity, regclass), coordination._raise_alert(text, text, text, text),
  coordination._clear_alert(text);
