-- Texts of the objects that each queue has of its own; filled by mbus._fill.
create table mbus.template (
  name text primary key,
  body text not null
);
