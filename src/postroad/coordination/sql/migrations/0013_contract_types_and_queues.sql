-- breaks older: no
drop function if exists coordination._type(text, text), coordination._create_queue(text, text);
