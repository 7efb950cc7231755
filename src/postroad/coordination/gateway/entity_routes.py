"""The routes of one entity, generated from its columns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel

from postroad import trace
from postroad.coordination.gateway.event_routes import MAX_ID, Limit
from postroad.coordination.gateway.rows import Row, Rows
from postroad.coordination.gateway.shapes import Shape
from postroad.postgres.calls import call
from postroad.postgres.connections import Pool
from postroad.web.cursors import decode_cursor
from postroad.web.pages import Page, page_of
from postroad.web.problems import problem_responses

Wait = Callable[[int | None], Awaitable[None]]
After = Annotated[
    int | None, Query(ge=1, le=MAX_ID, description="wait until the Reader has this event")
]
Mode = Annotated[
    Literal["replicate", "two-phase"] | None, Query(description="the mode of the event")
]
IfMatch = Annotated[
    str | None, Header(description="the ETag of the row as it was read; another one refuses")
]


class Command(BaseModel):
    """The result of a command: its event, and the row at the Writer after it."""

    event_id: int | None
    row: dict[str, Any] | None


def add_entity_routes(
    router: APIRouter, shape: Shape, replica: Shape | None, writer: Pool, reader: Pool, wait: Wait
) -> None:
    """Add the commands and queries of one entity."""
    name, collection = shape.name, f"/entities/{shape.name}"
    item = f"{collection}/{{key:path}}"
    rows = Rows(shape)
    # A Reader may keep fewer columns, in a table of another name.
    copies = Rows(shape.kept_in(replica) if replica is not None else shape)

    async def create(request: Request, body: Any, mode: Mode = None) -> Response:
        async with writer.connection() as connection:
            await _begin(connection, mode)
            row = await rows.insert(connection, _given(body), await _text(request))
            event = await call(connection, "coordination.current_event")
        key = quote(row.joined_key, safe=",")
        after = f"?after={event}" if event is not None else ""
        location = f"{router.prefix}{collection}/{key}{after}"
        return _answer(event, row, 201, {"Location": location})

    async def change(
        key: str, request: Request, body: Any, mode: Mode = None, if_match: IfMatch = None
    ) -> Response:
        async with writer.connection() as connection:
            await _begin(connection, mode)
            row = await rows.update(
                connection, key, _given(body), await _text(request), _version(if_match)
            )
            return _answer(await call(connection, "coordination.current_event"), row)

    async def delete(key: str, mode: Mode = None, if_match: IfMatch = None) -> Response:
        async with writer.connection() as connection:
            await _begin(connection, mode)
            await rows.delete(connection, key, _version(if_match))
            return _answer(await call(connection, "coordination.current_event"), None)

    async def list_rows(
        after: After = None, limit: Limit = 100, cursor: str | None = None
    ) -> Response:
        await wait(after)
        start = decode_cursor(cursor, *(str for _ in shape.keys)) if cursor else None
        async with reader.connection() as connection:
            found = await copies.page(connection, start, limit + 1)
        page = page_of(found, limit, lambda row: tuple(row.key))
        items = ",".join(row.text for row in page.items)
        return _json(f'{{"items":[{items}],"cursor":{json.dumps(page.cursor)}}}')

    async def get(key: str, after: After = None) -> Response:
        await wait(after)
        async with reader.connection() as connection:
            row = await copies.get(connection, key)
        # The version computed from fewer columns differs from that of the Writer.
        is_whole = copies.columns == rows.columns
        return _json(row.text, headers={"ETag": f'"{row.version}"'} if is_whole else {})

    # The models are created here, so the signatures cannot name them.
    create.__annotations__["body"] = shape.creation()
    change.__annotations__["body"] = shape.change()
    for verb, endpoint, method, path, summary, problems in (
        ("create", create, "POST", collection, "Create a", (409,)),
        ("change", change, "PATCH", item, "Change a", (404, 409, 412)),
        ("delete", delete, "DELETE", item, "Delete a", (404, 409, 412)),
        ("list", list_rows, "GET", collection, "Read rows of", (404,)),
        ("get", get, "GET", item, "Read one", (404,)),
    ):
        read = Page[dict[str, Any]] if verb == "list" else dict[str, Any]
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            status_code=201 if verb == "create" else 200,
            summary=f"{summary} {name} {'from the Reader' if method == 'GET' else 'at the Writer'}",
            name=f"{verb}_{name}",
            response_model=read if method == "GET" else Command,
            responses=problem_responses(*problems, 422, 503),
            tags=[name],
        )


def _given(body: BaseModel) -> list[str]:
    """Return the columns that the request names."""
    fields = type(body).model_fields
    return [str(fields[name].alias) for name in fields if name in body.model_fields_set]


async def _text(request: Request) -> str:
    """Return the body unchanged: the database reads numbers exactly, the model does not."""
    body = await request.body()
    return body.decode(json.detect_encoding(body))


def _json(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers, media_type="application/json")


def _answer(
    event: int | None, row: Row | None, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a `Command` with the row's version as its ETag."""
    text = f'{{"event_id":{json.dumps(event)},"row":{row.text if row is not None else "null"}}}'
    version = {"ETag": f'"{row.version}"'} if row is not None else {}
    return _json(text, status, {**version, **(headers or {})})


def _version(if_match: str | None) -> str | None:
    return None if if_match in (None, "*") else str(if_match).strip().strip('"')


async def _begin(connection: Any, mode: str | None) -> None:
    """Set the trace and the mode of the transaction's event."""
    if line := trace.line():
        await connection.execute("select" + trace.FOLLOWED, (line,))
    if mode is not None:
        await connection.execute("select coordination.set_mode(%s)", (mode,))
