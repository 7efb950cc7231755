-- breaks older: no
drop index if exists exchange.message_to_hand_out_idx;
alter table exchange.message add column turn bigint;
create index message_by_turn_idx on exchange.message (database_id, recipient, (coalesce(turn, number))) where state = 'queued';
alter table exchange.database add column is_restore_told boolean not null default false;
update exchange.database set is_restore_told = true where restored_at is not null;
alter table exchange.message add column is_parked_by_file boolean not null default false;
update exchange.message set is_parked_by_file = true where state = 'parked' and folder is null;
alter table exchange.lane add column replies bigint not null default 0;
update exchange.lane l set replies = r.count
from (select m.database_id, m.sender, count(*) from exchange.message m where m.kind = 'reply' group by 1, 2) r
where r.database_id = l.database_id and r.sender = l.sender;
-- Made again: with more parameters, which have defaults; with one more column; under another name.
drop function if exists exchange.quarantine(bigint, bigint, bigint, text, boolean);
drop function if exists exchange.requeue(bigint, text, text, text);
drop function if exists exchange.replies(text, integer, bigint, bigint);
drop function if exists exchange._tell_restored(exchange.database, bigint);
