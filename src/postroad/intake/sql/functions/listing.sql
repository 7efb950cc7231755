-- Returns the digests of the pages that need not be recorded again, and reserves their replacement for this scan.
create or replace function intake.known_pages(p_server_id integer, p_scan bigint) returns bytea[]
language sql set search_path from current as $$
  insert into intake.listings as l (server_id, scan) values (p_server_id, p_scan)
  on conflict (server_id) do update set scan = excluded.scan returning l.pages;
$$;

-- Replaces the digests, unless another scan or _forget_pages has come between.
create or replace function intake.save_pages(p_server_id integer, p_scan bigint, p_pages bytea[]) returns void
language sql set search_path from current as $$
  update intake.listings l set pages = p_pages
  where l.server_id = p_server_id and l.scan = p_scan and l.pages <> p_pages;
$$;

-- Makes the next scan record every page, because a version that is in the journal is to be imported if it reappears.
create or replace function intake._forget_pages(p_server_id integer) returns void
language sql set search_path from current as $$
  insert into intake.listings as l (server_id) values (p_server_id)
  on conflict (server_id) do update set scan = null, pages = '{}' where l.scan is not null or l.pages <> '{}';
$$;
