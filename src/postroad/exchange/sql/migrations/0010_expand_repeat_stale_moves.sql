-- breaks older: no
-- Created again for the same calls: with one more parameter, which has a default, and with the answer that older servers expect.
drop function if exists exchange.placed(bigint, bigint[], bigint[], text[]);
drop function if exists exchange.tick(bigint, double precision);
