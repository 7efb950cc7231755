        insert into mbus.{ready} (id) select i.id from {source};
