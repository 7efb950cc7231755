"""Read-only facts about servers and files, without credentials; the lists are in `resources`."""

from __future__ import annotations

from postroad.intake.errors import FileNotFound, IntakeError, ServerNotFound
from postroad.postgres.calls import Connection, Row, rows

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
    return await _one(connection, text, name_or_id, "server", ServerNotFound)


async def file(connection: Connection, file_id: str | int) -> Row:
    """Return one file with its history. Raises FileNotFound."""
    text = "select * from intake.file_list where id::text = %s"
    found = await _one(connection, text, file_id, "file", FileNotFound)
    text = "select at, status, note from intake.file_history where file_id = %s order by id"
    history = await rows(connection, text, found["id"])
    return {**found, "history": history}


async def _one(
    connection: Connection, text: str, identity: str | int, noun: str, missing: type[IntakeError]
) -> Row:
    found = await rows(connection, text, str(identity))
    if not found:
        hint = f"list them: postroad intake {noun}s list"
        raise missing(f"there is no {noun} {identity}", hint=hint)
    return found[0]


async def counts(connection: Connection) -> dict[str, int]:
    """Return the number of files by status."""
    text = "select status, count(*) from intake.imported_files group by status"
    cursor = await connection.execute(text)
    return dict.fromkeys(FILE_STATUSES, 0) | dict(await cursor.fetchall())
