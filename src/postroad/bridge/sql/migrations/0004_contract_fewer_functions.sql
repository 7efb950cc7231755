-- breaks older: no
drop function if exists bridge._without_own(boolean[], text[]), bridge._rotate_foreign(interval);
