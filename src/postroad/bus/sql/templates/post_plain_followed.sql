    null;    -- followers get copies, so every message takes the general path
