-- One path per line, in the order in which they run.
internal/now.sql
tables/template.sql
tables/item.sql      -- its default needs the clock
tables/run.sql
functions/add_item.sql
views/item_count.sql
templates/greeting.sql
grants.sql
after.sql
