      , to_{consumer_id} as (
        insert into mbus.{ready} (id, origin)
        select s.id, s.origin from stored s where {consumer_id} = any (s.recipients){moved})
