-- breaks older: no
-- The list of the sagas in one state, the latest first.
create index saga_by_state_idx on mbus.saga (state, id);
