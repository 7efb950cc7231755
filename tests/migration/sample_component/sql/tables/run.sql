create table sample.run (id bigint generated always as identity primary key);
