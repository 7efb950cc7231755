"""Read-only facts for the command line, the console and metrics. Each takes a connection."""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import Connection
from psycopg.rows import dict_row

__all__ = [
    "clients",
    "databases",
    "lost_messages",
    "messages",
    "process",
    "processes",
    "routes",
    "server",
    "traffic",
]

LIST_MOST = 1000

DATABASES = "select * from exchange.databases_shown(p_after => %s, p_limit => %s)"
CLIENTS = "select * from exchange.clients_shown(p_after => %s, p_limit => %s)"
PROCESSES = (
    "select * from exchange.processes_shown(p_database => %s, p_state => %s, p_before => %s,"
    " p_limit => %s)"
)
PROCESS = "select exchange.process_shown(p_process => %s) as process"
MESSAGES = (
    "select * from exchange.messages_shown(p_database => %s, p_state => %s, p_sender => %s,"
    " p_before => %s, p_limit => %s, p_search => %s)"
)
LOST = "select * from exchange.lost_messages(p_database => %s, p_from => %s)"
SERVER = (
    "select s.*, (select count(*) from exchange.move) as pending,"
    " exists (select from pg_locks l where l.locktype = 'advisory'"
    " and l.database = (select d.oid from pg_database d where d.datname = current_database())"
    " and l.classid = exchange._lock_class()::oid and l.objid = 1 and l.granted) as is_serving"
    " from exchange.server s"
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
ROUTES = "select * from exchange.route order by id"


def server(connection: Connection[Any]) -> dict[str, Any]:
    """Return who serves, since when, and how many moves are pending."""
    return _rows(connection, SERVER)[0]


def databases(
    connection: Connection[Any], *, after: str | None = None, limit: int = LIST_MOST
) -> list[dict[str, Any]]:
    """Return databases with what lies in them, by name."""
    return _rows(connection, DATABASES, after, limit)


def traffic(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return per database the messages received so far, and those handed over per second."""
    return _rows(connection, TRAFFIC)


def clients(
    connection: Connection[Any], *, after: str | None = None, limit: int = LIST_MOST
) -> list[dict[str, Any]]:
    """Return clients without their secrets, by name."""
    return _rows(connection, CLIENTS, after, limit)


def processes(
    connection: Connection[Any],
    *,
    database: str | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """Return processes, the latest first; state `open` means those not ended."""
    return _rows(connection, PROCESSES, database, state, before, limit)


def process(connection: Connection[Any], id_: str) -> dict[str, Any] | None:
    """Return one process with its files and history, None if there is none."""
    found: dict[str, Any] | None = _rows(connection, PROCESS, id_)[0]["process"]
    return found


def messages(
    connection: Connection[Any],
    *,
    database: str | None = None,
    state: str | None = None,
    sender: str | None = None,
    before: int | None = None,
    limit: int = 100,
    search: str | None = None,
) -> list[dict[str, Any]]:
    """Return messages and replies, the latest first.

    `search` is a part of the id, sender, recipient or file name.
    """
    return _rows(connection, MESSAGES, database, state, sender, before, limit, search)


def lost_messages(
    connection: Connection[Any], database: str, from_seq: int
) -> list[dict[str, Any]]:
    """Return what a database that was restored to a marker has lost, in order."""
    return _rows(connection, LOST, database, from_seq)


def routes(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return the ways between the bus and the mailboxes."""
    return _rows(connection, ROUTES)


def _rows(
    connection: Connection[Any], text: LiteralString, *parameters: Any
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(text, parameters).fetchall()
