create table sample.item (
    id bigint generated always as identity primary key,
    added_at timestamptz not null default clock_timestamp(),
    labels hstore not null default ''
);
