-- breaks older: no
alter table coordination.payload add column changed text[];
-- creates: tables/unrestored.sql
drop function if exists coordination._restore_entity(coordination.entity, bigint, text, boolean);
drop function if exists coordination._refuse_cascade(coordination.entity, bigint, text[]);
-- Events that a Reader dropped before this migration and that nothing has restored there.
insert into coordination.unrestored (event_id, entities)
select e."Id", e."Entities" from coordination."AppEvent" e
where e."AppEventStatusId" = 11 and exists (select from coordination.node n where n.role = 'reader')
  and not exists (select from coordination."AppEvent" r where r."Cancels" = e."Id");
