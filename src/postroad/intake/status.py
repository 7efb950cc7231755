"""Read-only facts about servers and files; the lists are in `resources`. Each takes a connection.

Nothing here returns credentials, sealed or not.
"""

from __future__ import annotations

from psycopg.rows import dict_row

from postroad.intake.errors import FileNotFound, ServerNotFound
from postroad.postgres.calls import Connection, Row, run

SERVER_STATUSES = (
    "new", "ok", "unreachable", "login_refused", "forbidden", "error", "host_key_changed",
)  # fmt: skip
FILE_STATUSES = (
    "discovered", "downloading", "downloaded", "uploading_to_minio", "uploaded_to_minio",
    "notifying", "completed", "failed", "vanished", "superseded", "skipped",
)  # fmt: skip


async def server(connection: Connection, name_or_id: str | int) -> Row:
    """Return one server by id or name. Raises ServerNotFound."""
    text = "select * from intake.server_status where %s in (id::text, name)"
    found = await run(connection.cursor(row_factory=dict_row), text, str(name_or_id))
    if not found:
        raise ServerNotFound(
            f"there is no server {name_or_id}", hint="list them: postroad intake servers list"
        )
    return dict(found[0])


async def file(connection: Connection, file_id: str | int) -> Row:
    """Return one file with its history. Raises FileNotFound."""
    cursor = connection.cursor(row_factory=dict_row)
    found = await run(cursor, "select * from intake.file_list where id::text = %s", str(file_id))
    if not found:
        raise FileNotFound(
            f"there is no file {file_id}", hint="list them: postroad intake files list"
        )
    text = "select at, status, note from intake.file_history where file_id = %s order by id"
    return {**found[0], "history": await run(cursor, text, found[0]["id"])}


async def counts(connection: Connection) -> dict[str, int]:
    """Return how many files have each status."""
    cursor = await connection.execute(
        "select status, count(*) from intake.imported_files group by status"
    )
    return dict.fromkeys(FILE_STATUSES, 0) | dict(await cursor.fetchall())
