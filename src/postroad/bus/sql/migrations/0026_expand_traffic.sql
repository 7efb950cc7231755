-- breaks older: no
alter table if exists mbus.tally drop constraint kind_is_known;
alter table if exists mbus.tally add constraint kind_is_known check (kind in ('posted', 'consumed', 'died', 'expired', 'rejected'));
-- the rest runs with the upgrade
-- creates: tables/traffic.sql
