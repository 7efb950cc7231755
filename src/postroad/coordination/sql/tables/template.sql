-- Texts of the objects that each entity has of its own; filled by coordination._fill.
create table coordination.template (
  name text primary key,
  body text not null
);
