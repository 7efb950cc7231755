create view coordination.{view} as
select p.event_id as "AppEventId", p.sequence as "Sequence", t."Operation", p.id as "RowVersion",
  array(select json_object_keys(coalesce(p.{image}, '{}'))) as "Present",
  {values}
from coordination.payload_row p
join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = {entity}
left join lateral json_to_record(p.{image}) as r ({definitions}) on true
