    null;    -- whoever follows gets copies, so every message goes the long way
