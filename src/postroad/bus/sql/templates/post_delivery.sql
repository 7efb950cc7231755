        insert into mbus.{ready} (id) values (v_id);
