"""The routes of one entity, generated from its columns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

from postroad import trace
from postroad.coordination.gateway.rows import Rows, Written
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
            responses=problem_responses(409, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key}}",
            self._change(),
            methods=["PATCH"],
            summary=f"Change a {name} at the Writer",
            name=f"change_{name}",
            responses=problem_responses(404, 409, 412, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key}}",
            self._delete,
            methods=["DELETE"],
            summary=f"Delete a {name} at the Writer",
            name=f"delete_{name}",
            responses=problem_responses(404, 409, 412, 422, 503),
            **kinds,
        )
        router.add_api_route(
            path,
            self._list,
            methods=["GET"],
            summary=f"Read rows of {name} from the Reader",
            name=f"list_{name}",
            responses=problem_responses(404, 422, 503),
            **kinds,
        )
        router.add_api_route(
            f"{path}/{{key}}",
            self._get,
            methods=["GET"],
            summary=f"Read one {name} from the Reader",
            name=f"get_{name}",
            responses=problem_responses(404, 422, 503),
            **kinds,
        )

    def _creation(self) -> Callable[..., Awaitable[Command]]:
        model = self._shape.creation()

        async def create(response: Response, body: Any, mode: Mode = None) -> Command:
            values = body.model_dump(by_alias=True, exclude_unset=True, mode="json")
            async with self._writer.connection() as connection:
                await _begin(connection, mode)
                written = await self._rows.insert(connection, values)
            response.headers["Location"] = self._location(written)
            return _answer(response, written)

        # The annotation is made here, so it cannot be written in the signature.
        create.__annotations__["body"] = model
        return create

    def _change(self) -> Callable[..., Awaitable[Command]]:
        model = self._shape.change()

        async def change(
            key: str,
            response: Response,
            body: Any,
            mode: Mode = None,
            if_match: IfMatch = None,
        ) -> Command:
            values = body.model_dump(by_alias=True, exclude_unset=True, mode="json")
            async with self._writer.connection() as connection:
                await _begin(connection, mode)
                written = await self._rows.update(connection, key, values, _version(if_match))
            return _answer(response, written)

        change.__annotations__["body"] = model
        return change

    async def _delete(
        self, key: str, response: Response, mode: Mode = None, if_match: IfMatch = None
    ) -> Command:
        async with self._writer.connection() as connection:
            await _begin(connection, mode)
            written = await self._rows.delete(connection, key, _version(if_match))
        return _answer(response, written)

    async def _list(
        self,
        after: After = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        cursor: str | None = None,
    ) -> Page[dict[str, Any]]:
        await self._wait(after)
        start = decode_cursor(cursor, *(str for _ in self._shape.keys)) if cursor else None
        async with self._reader.connection() as connection:
            found = await self._copies.page(connection, start, limit + 1)
        return page_of(found, limit, lambda row: tuple(self._copies.key_of(row)))

    async def _get(self, key: str, response: Response, after: After = None) -> dict[str, Any]:
        await self._wait(after)
        async with self._reader.connection() as connection:
            found = await self._copies.get(connection, key)
        if self._copies.columns == self._rows.columns:
            # Of fewer columns the version would be another than the Writer's.
            response.headers["ETag"] = f'"{found.version}"'
        return found.row or {}

    def _location(self, written: Written) -> str:
        """Where the new row is read, once the Reader has it."""
        key = quote(",".join(self._rows.key_of(written.row or {})), safe=",")
        after = f"?after={written.event_id}" if written.event_id is not None else ""
        return f"{self._path}/{key}{after}"


def _answer(response: Response, written: Written) -> Command:
    if written.version is not None:
        response.headers["ETag"] = f'"{written.version}"'
    return Command(event_id=written.event_id, row=written.row)


def _version(if_match: str | None) -> str | None:
    return None if if_match in (None, "*") else str(if_match).strip().strip('"')


async def _begin(connection: Any, mode: str | None) -> None:
    """Say in the transaction what its event shall be, and to which trace it belongs."""
    if line := trace.line():
        await connection.execute("select" + trace.FOLLOWED, (line,))
    if mode is not None:
        await connection.execute("select coordination.set_mode(%s)", (mode,))
