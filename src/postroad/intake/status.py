"""Read-only facts about servers and files; the lists are in `resources`. Each takes a connection.

Nothing here returns credentials, sealed or not.
"""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from postroad.intake.errors import FileNotFound, ServerNotFound

SERVER_STATUSES = (
    "new",
    "ok",
    "unreachable",
    "login_refused",
    "forbidden",
    "error",
    "host_key_changed",
)
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


async def server(connection: AsyncConnection[Any], name_or_id: str | int) -> dict[str, Any]:
    """Return one server by id or name. Raises ServerNotFound."""
    found = await _rows(
        connection,
        "select * from intake.server_status where %s in (id::text, name)",
        str(name_or_id),
    )
    if not found:
        raise ServerNotFound(
            f"there is no server {name_or_id}", hint="list them: postroad intake servers list"
        )
    return found[0]


async def file(connection: AsyncConnection[Any], file_id: str | int) -> dict[str, Any]:
    """Return one file with its history. Raises FileNotFound."""
    found = await _rows(
        connection, "select * from intake.file_list where id::text = %s", str(file_id)
    )
    if not found:
        raise FileNotFound(
            f"there is no file {file_id}", hint="list them: postroad intake files list"
        )
    text: LiteralString = (
        "select at, status, note from intake.file_history where file_id = %s order by id"
    )
    return {**found[0], "history": await _rows(connection, text, found[0]["id"])}


async def counts(connection: AsyncConnection[Any]) -> dict[str, int]:
    """Return how many files have each status."""
    text: LiteralString = "select status, count(*) from intake.imported_files group by status"
    found = {row["status"]: row["count"] for row in await _rows(connection, text)}
    return {status: found.get(status, 0) for status in FILE_STATUSES}


async def _rows(
    connection: AsyncConnection[Any], text: LiteralString, *parameters: object
) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(text, parameters)
        return await cursor.fetchall()
