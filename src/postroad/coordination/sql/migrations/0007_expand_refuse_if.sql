-- breaks older: no
drop function if exists coordination._refuse(text, text, text);
