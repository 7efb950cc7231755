create table sample.template (name text primary key, body text not null);
