"""What is so: read-only facts about servers, files and transfers. Each takes a connection.

Nothing here returns credentials, sealed or not.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql
from psycopg.rows import dict_row

from postroad.intake.errors import FileNotFound, ServerNotFound

LIMIT_DEFAULT = 100

FILE_STATUSES = (
    "discovered",
    "downloading",
    "downloaded",
    "uploading_to_minio",
    "uploaded_to_minio",
    "notifying",
    "completed",
    "failed",
    "vanished",
    "superseded",
    "skipped",
)

_SERVER = """
select v.*, s.host_key, s.seen_host_key, s.trusts_first_key, s.scan_interval,
       s.include, s.exclude, s.ignore, s.is_case_sensitive, s.max_depth, s.follows_links, s.looks,
       s.minimum_age, s.done_suffix, s.after_import, s.move_to, s.way, s.max_connections,
       s.created_at, s.updated_at
from intake.server_status v join intake.sftp_servers s using (id)
"""
_FILE = """
select f.id, f.server_id, s.name as server, f.filename, encode(f.path, 'hex') as path_hex,
       f.filesize, f.mtime, f.version, f.file_hash, f.status, f.error_message, f.attempts,
       f.next_try_at,
       case when f.lease_owner <> 'queued' then f.lease_owner end as worker, f.lease_until,
       f.bytes_done, f.store, f.object_key, f.cleanup, f.created_at, f.updated_at, f.completed_at
from intake.imported_files f join intake.sftp_servers s on s.id = f.server_id
"""


def servers(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return every server with its settings, how it stands and its files by status."""
    return _rows(connection, _SERVER + " order by v.name")


def server(connection: Connection[Any], name_or_id: str | int) -> dict[str, Any]:
    """Return one server by id or name. Raises ServerNotFound."""
    found = _rows(
        connection,
        _SERVER + " where v.id::text = %s or v.name = %s",
        str(name_or_id),
        str(name_or_id),
    )
    if not found:
        raise ServerNotFound(
            f"there is no server {name_or_id}", hint="list them: postroad intake servers list"
        )
    return found[0]


def files(
    connection: Connection[Any],
    *,
    status: str | None = None,
    server: str | int | None = None,
    name: str | None = None,
    before: int | None = None,
    limit: int = LIMIT_DEFAULT,
) -> list[dict[str, Any]]:
    """Return files, the latest first: of a status, of a server, with a piece of a name."""
    return _rows(
        connection,
        _FILE + " where (%s::text is null or f.status = %s)"
        " and (%s::text is null or s.id::text = %s or s.name = %s)"
        " and (%s::text is null or strpos(lower(f.filename), lower(%s)) > 0)"
        " and (%s::bigint is null or f.id < %s) order by f.id desc limit %s",
        *[status] * 2,
        *[None if server is None else str(server)] * 3,
        *[name] * 2,
        *[before] * 2,
        limit,
    )


def file(connection: Connection[Any], file_id: int) -> dict[str, Any]:
    """Return one file. Raises FileNotFound."""
    found = _rows(connection, _FILE + " where f.id = %s", file_id)
    if not found:
        raise FileNotFound(
            f"there is no file {file_id}", hint="list them: postroad intake files list"
        )
    return found[0]


def history(connection: Connection[Any], file_id: int) -> list[dict[str, Any]]:
    """Return what happened to a file, in order."""
    return _rows(
        connection,
        "select at, status, note from intake.file_history where file_id = %s order by id",
        file_id,
    )


def transfers(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return what moves now, with its progress."""
    return _rows(connection, "select * from intake.transfers order by id")


def counts(connection: Connection[Any]) -> dict[str, int]:
    """Return how many files have each status."""
    found = {
        row["status"]: row["count"]
        for row in _rows(
            connection, "select status, count(*) from intake.imported_files group by status"
        )
    }
    return {status: found.get(status, 0) for status in FILE_STATUSES}


def stores(connection: Connection[Any]) -> list[dict[str, Any]]:
    """Return the stores that have failed, and how they stand."""
    return _rows(connection, "select * from intake.store_state order by store")


def _rows(connection: Connection[Any], text: str, *parameters: object) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(sql.SQL(text), parameters)
        return cursor.fetchall()
