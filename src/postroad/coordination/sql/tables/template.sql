-- The templates of the objects of each entity; filled by coordination._fill.
create table coordination.template (
  name text primary key,
  body text not null
);
