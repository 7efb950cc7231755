"""The routes of one entity, generated from its columns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from postroad import trace
from postroad.coordination.gateway.rows import Row, Rows
from postroad.coordination.gateway.shapes import Shape
from postroad.web import Page, decode_cursor, page_of, problem_responses

__all__ = ["Command", "EntityRoutes"]

Wait = Callable[[int | None], Awaitable[None]]
After = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="wait until the Reader has this event"),
]
Mode = Annotated[
    Literal["replicate", "two-phase"] | None, Query(description="the mode of the event")
]
IfMatch = Annotated[
    str | None, Header(description="the ETag of the row as it was read; another one refuses")
]


class Command(BaseModel):
    """What a command did: its event, and the row as it is at the Writer now."""

    event_id: int | None
    row: dict[str, Any] | None


class EntityRoutes:
    """Adds the routes of one entity to a router."""

    def __init__(
        self,
        shape: Shape,
        replica: Shape | None,
        writer: AsyncConnectionPool[Any],
        reader: AsyncConnectionPool[Any],
        wait: Wait,
    ) -> None:
        self._shape = shape
        self._rows = Rows(shape)
        # A Reader may keep fewer columns, and in a table of another name.
        self._copies = Rows(shape.kept_in(replica) if replica is not None else shape)
        self._writer = writer
        self._reader = reader
        self._wait = wait
        self._path = ""

    def add_to(self, router: APIRouter) -> None:
        """Add commands and queries."""
        name = self._shape.name
        path = f"/entities/{name}"
        self._path = f"{router.prefix}{path}"
        kinds: dict[str, Any] = {"tags": [name]}
        router.add_api_route(
            path,
            self._creation(),
            methods=["POST"],
            status_code=201,
            summary=f"Create a {name} at the Writer",
            name=f"create_{name}",
            response_model=Command,
            responses=problem_responses(409, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key:path}}",
            self._change(),
            methods=["PATCH"],
            summary=f"Change a {name} at the Writer",
            name=f"change_{name}",
            response_model=Command,
            responses=problem_responses(404, 409, 412, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key:path}}",
            self._delete,
            methods=["DELETE"],
            summary=f"Delete a {name} at the Writer",
            name=f"delete_{name}",
            response_model=Command,
            responses=problem_responses(404, 409, 412, 422, 503),
            **kinds,
        )
        router.add_api_route(
            path,
            self._list,
            methods=["GET"],
            summary=f"Read rows of {name} from the Reader",
            name=f"list_{name}",
            response_model=Page[dict[str, Any]],
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key:path}}",
            self._get,
            methods=["GET"],
            summary=f"Read one {name} from the Reader",
            name=f"get_{name}",
            response_model=dict[str, Any],
            responses=problem_responses(404, 422, 503),
            **kinds,
        )

    def _creation(self) -> Callable[..., Awaitable[Response]]:
        model = self._shape.creation()

        async def create(request: Request, body: Any, mode: Mode = None) -> Response:
            async with self._writer.connection() as connection:
                await _begin(connection, mode)
                row = await self._rows.insert(connection, _given(body), await _text(request))
                event = await _event(connection)
            key = quote(self._rows.join_key(row), safe=",")
            after = f"?after={event}" if event is not None else ""
            return _answer(event, row, 201, {"Location": f"{self._path}/{key}{after}"})

        # The annotation is made here, so it cannot be written in the signature.
        create.__annotations__["body"] = model
        return create

    def _change(self) -> Callable[..., Awaitable[Response]]:
        model = self._shape.change()

        async def change(
            key: str,
            request: Request,
            body: Any,
            mode: Mode = None,
            if_match: IfMatch = None,
        ) -> Response:
            async with self._writer.connection() as connection:
                await _begin(connection, mode)
                row = await self._rows.update(
                    connection, key, _given(body), await _text(request), _version(if_match)
                )
                return _answer(await _event(connection), row)

        change.__annotations__["body"] = model
        return change

    async def _delete(self, key: str, mode: Mode = None, if_match: IfMatch = None) -> Response:
        async with self._writer.connection() as connection:
            await _begin(connection, mode)
            await self._rows.delete(connection, key, _version(if_match))
            return _answer(await _event(connection), None)

    async def _list(
        self,
        after: After = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Response:
        await self._wait(after)
        start = decode_cursor(cursor, *(str for _ in self._shape.keys)) if cursor else None
        async with self._reader.connection() as connection:
            found = await self._copies.page(connection, start, limit + 1)
        page = page_of(found, limit, lambda row: row.key)
        items = ",".join(row.text for row in page.items)
        return _json(f'{{"items":[{items}],"cursor":{json.dumps(page.cursor)}}}')

    async def _get(self, key: str, after: After = None) -> Response:
        await self._wait(after)
        async with self._reader.connection() as connection:
            row = await self._copies.get(connection, key)
        # Of fewer columns the version would be another than the Writer's.
        is_whole = self._copies.columns == self._rows.columns
        return _json(row.text, headers={"ETag": f'"{row.version}"'} if is_whole else {})


def _given(body: BaseModel) -> list[str]:
    """Return the columns that the request names."""
    fields = type(body).model_fields
    return [str(fields[name].alias) for name in fields if name in body.model_fields_set]


async def _text(request: Request) -> str:
    """Return the body as it was sent: the database reads numbers exactly, the model does not."""
    body = await request.body()
    return body.decode(json.detect_encoding(body))


async def _event(connection: AsyncConnection[Any]) -> int | None:
    cursor = await connection.execute("select coordination.current_event()")
    row = await cursor.fetchone()
    return row[0] if row else None


def _json(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers, media_type="application/json")


def _answer(
    event: int | None, row: Row | None, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Write a `Command`."""
    text = f'{{"event_id":{json.dumps(event)},"row":{row.text if row is not None else "null"}}}'
    version = {"ETag": f'"{row.version}"'} if row is not None else {}
    return _json(text, status, {**version, **(headers or {})})


def _version(if_match: str | None) -> str | None:
    return None if if_match in (None, "*") else str(if_match).strip().strip('"')


async def _begin(connection: Any, mode: str | None) -> None:
    """Say in the transaction what its event shall be, and to which trace it belongs."""
    if line := trace.line():
        await connection.execute("select" + trace.FOLLOWED, (line,))
    if mode is not None:
        await connection.execute("select coordination.set_mode(%s)", (mode,))
