insert into sample.run default values;
