      when {cell} then
        insert into mbus.{log} (id, added, data, properties)
        select v_id, mbus.now(), $1, $3 where pg_sequence_last_value('mbus.{head}') <= v_generation;{deliveries}
