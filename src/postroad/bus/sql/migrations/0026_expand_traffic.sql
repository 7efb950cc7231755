-- breaks older: no
alter table mbus.tally drop constraint kind_is_known;
alter table mbus.tally add constraint kind_is_known check (kind in ('posted', 'consumed', 'died', 'expired', 'rejected'));
-- creates: tables/traffic.sql
