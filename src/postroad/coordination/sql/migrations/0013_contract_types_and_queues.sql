-- breaks older: no
drop function if exists coordination._type(text, text), coordination._create_queue(text, text),
  coordination._restore_range(coordination.entity, bigint, text, text[], bigint, bigint), coordination._published_to();
