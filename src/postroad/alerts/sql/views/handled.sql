-- The problems that have an owner or are muted, with mutes that have not ended.
create or replace view alerts.handled as
select h.key, h.owner, h.owned_at, m.muted_until, m.muted_by, m.mute_reason
from alerts.handling h
left join lateral (select h.muted_until, h.muted_by, h.mute_reason where h.muted_until > alerts.now()) m on true
where h.owner is not null or m.muted_until is not null;
