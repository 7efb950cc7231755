-- The templates of the objects of each queue; filled by mbus._fill.
create table mbus.template (
  name text primary key,
  body text not null
);
