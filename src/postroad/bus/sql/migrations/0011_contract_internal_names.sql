-- breaks older: no
-- Internal functions that have other names now.
drop function if exists mbus._look(mbus.queue, text, integer), mbus._look_again(bigint[]);
drop function if exists mbus._put_anew(text, integer, mbus.parcel), mbus._keep_marks(jsonb), mbus._recall_marks();
