"""Read-only facts that are not lists (those are in `resources`). Each takes a connection."""

from __future__ import annotations

from postroad.postgres.calls import Connection, Row, call, rows

SERVER = (
    "select s.*, (select count(*) from exchange.move) as pending,"
    " exists (select from pg_locks l where l.locktype = 'advisory'"
    " and l.database = (select d.oid from pg_database d where d.datname = current_database())"
    " and l.classid = exchange._lock_class()::oid and l.objid = 1 and l.granted) as is_serving"
    " from exchange.server s"
)
MIGRATION = (
    "select s.root_path as root, s.second_root_path as second_root,"
    " array(select m.holder from exchange.member m where m.root_id <> s.root_id order by 1)"
    " as writing_to_second_root,"
    " count(f.size) as files, coalesce(sum(f.size), 0)::bigint as bytes from exchange.server s"
    " left join exchange._files(not exchange._is_objects(s.root_path)) f (size) on true"
    " where s.is_migrating group by s.id"
)
TRAFFIC = (
    "select d.id, coalesce(i.received, 0) as received, coalesce(o.done, 0) / 10.0 as per_second"
    " from exchange.database d"
    " left join (select l.database_id, sum(l.sequence - l.replies)::bigint as received"
    " from exchange.lane l group by 1) i on i.database_id = d.id"
    " left join (select m.database_id, count(*) as done from exchange.message m"
    " where m.state = 'done' and m.kind = 'message'"
    " and m.finished_at > clock_timestamp() - interval '10 s' group by 1) o on o.database_id = d.id"
    " order by d.id"
)


async def server(connection: Connection) -> Row:
    """Return which process serves, since when, and how many file moves are pending."""
    (found,) = await rows(connection, SERVER)
    return found


async def migration(connection: Connection) -> Row | None:
    """Return both stores of a migration and what is left in the second; None without one."""
    found = await rows(connection, MIGRATION)
    return found[0] if found else None


async def traffic(connection: Connection) -> list[Row]:
    """Return, for each database, the messages received so far and those handed over per second."""
    return await rows(connection, TRAFFIC)


async def process(connection: Connection, id_: str) -> Row | None:
    """Return one process with its files, replies and history; None if there is none."""
    found: Row | None = await call(connection, "exchange.process_shown", id_)
    return found
