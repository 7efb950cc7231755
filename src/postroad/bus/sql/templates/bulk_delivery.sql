      , to_{consumer_id} as (insert into mbus.{ready} (id) select i.id from incoming i where {hit})
