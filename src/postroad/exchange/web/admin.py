"""What administrators see and do, behind an admin's secret."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from postroad.exchange.desk import Desk
from postroad.exchange.errors import MessageConflict, MessageNotFound, ProcessNotFound
from postroad.exchange.names import is_id
from postroad.exchange.placement import Move
from postroad.exchange.processes import Processes
from postroad.exchange.web.answers import (
    ClientShown,
    DatabaseShown,
    Prepared,
    ProcessListed,
    ProcessShown,
    Requeued,
)
from postroad.exchange.web.identity import Identity
from postroad.exchange.web.models import Release, Requeue
from postroad.exchange.web.processes import is_process_id
from postroad.exchange.web.values import Text, answer, body_of, described, parsed
from postroad.web import Page, decode_cursor, encode_cursor, problem_responses

__all__ = ["admin_routes"]

PROCESSES = (
    "select * from exchange.processes_shown(p_database => %s, p_state => %s, p_before => %s,"
    " p_limit => %s)"
)
DATABASES = "select * from exchange.databases_shown(p_after => %s, p_limit => %s)"
CLIENTS = "select * from exchange.clients_shown(p_after => %s, p_limit => %s)"
REQUEUE = (
    "select exchange.requeue(p_epoch => %s, p_id => %s, p_sender => %s, p_database => %s,"
    " p_recipient => %s)"
)

Limit = Annotated[int, Query(ge=1, le=1000)]


def _listed(model: Any) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": Page[model]}, **problem_responses(401, 403, 422, 503)}


HIDDEN = ("number", "placed", "temporary")


def admin_routes(identity: Identity, processes: Processes, desk: Desk) -> APIRouter:
    """Return the routes of administrators."""
    routes = APIRouter(tags=["administration"])

    @routes.get("/processes", response_model=None, responses=_listed(ProcessListed))
    async def list_processes(
        request: Request,
        limit: Limit = 100,
        cursor: str | None = None,
        database: Annotated[Text | None, Query()] = None,
        state: Annotated[Text | None, Query()] = None,
    ) -> Response:
        """List processes, the latest first."""
        await identity.admin(request)
        before = decode_cursor(cursor, int)[0] if cursor else None
        if before is not None and abs(before) > 2**62:
            before = 0
        rows = await desk.journal.rows(PROCESSES, database, state, before, limit + 1)
        return _page(rows, limit, "number")

    @routes.get(
        "/processes/{id}",
        response_model=None,
        responses={200: {"model": ProcessShown}, **problem_responses(401, 403, 404, 503)},
    )
    async def show_process(request: Request, id: str) -> Response:
        """Show a process with its files and its history."""
        await identity.admin(request)
        found = await processes.shown(id) if is_process_id(id) else None
        if found is None:
            raise ProcessNotFound("there is no such process")
        found["files"] = [
            {key: value for key, value in file.items() if key not in HIDDEN}
            for file in found["files"]
        ]
        found.pop("deadline", None)
        return answer(found)

    @routes.post(
        "/processes/{id}/release",
        response_model=None,
        openapi_extra={"requestBody": {**described(Release)["requestBody"], "required": False}},
        responses={
            200: {"model": Prepared},
            **problem_responses(401, 403, 404, 409, 413, 415, 422, 503),
        },
    )
    async def release(request: Request, id: str) -> Response:
        """End a process by hand; one that is ready to commit needs its outcome."""
        caller = await identity.admin(request)
        async with body_of(request) as body:
            given = parsed(Release, body) if body.strip() else Release()
        if not is_process_id(id):
            raise ProcessNotFound("there is no such process")
        return answer(
            await processes.end("release", caller.id, id, outcome=given.outcome, error=given.reason)
        )

    @routes.get("/databases", response_model=None, responses=_listed(DatabaseShown))
    async def list_databases(
        request: Request, limit: Limit = 100, cursor: str | None = None
    ) -> Response:
        """List databases and what lies in them."""
        await identity.admin(request)
        rows = await desk.journal.rows(DATABASES, _after(cursor), limit + 1)
        return _page(rows, limit, "id")

    @routes.get("/clients", response_model=None, responses=_listed(ClientShown))
    async def list_clients(
        request: Request, limit: Limit = 100, cursor: str | None = None
    ) -> Response:
        """List clients, without their secrets."""
        await identity.admin(request)
        rows = await desk.journal.rows(CLIENTS, _after(cursor), limit + 1)
        return _page(rows, limit, "id")

    @routes.post(
        "/messages/{id}/requeue",
        response_model=None,
        openapi_extra={"requestBody": {**described(Requeue)["requestBody"], "required": False}},
        responses={
            200: {"model": Requeued},
            **problem_responses(401, 403, 404, 409, 413, 415, 422, 503),
        },
    )
    async def requeue(request: Request, id: str) -> Response:
        """Hand a parked or deferred message out again."""
        await identity.admin(request)
        async with body_of(request) as body:
            given = parsed(Requeue, body) if body.strip() else Requeue()
        if not is_id(id):
            raise MessageNotFound("there is no such message")
        found = await desk.journal.call(
            REQUEUE, desk.epoch, id, given.sender, given.database, given.recipient
        )
        _refuse(found, id)
        moves = [Move.of(fact) for fact in found["moves"]]
        if await desk.place(moves):
            raise MessageConflict(
                f"the file of message {id} is missing; it stays parked",
                hint="put the right file into the folder Error, then requeue it again",
            )
        await desk.marks.place(moves)
        return answer({"status": "OK", "state": found["state"]})

    return routes


def _refuse(found: dict[str, Any], id_: str) -> None:
    match found["status"]:
        case "MISSING":
            raise MessageNotFound(f"there is no message {id_}")
        case "AMBIGUOUS":
            raise MessageConflict(
                f"several messages have the id {id_}",
                hint='say which: {"sender": "…"}, also by database or recipient',
            )
        case "CONFLICT":
            raise MessageConflict(
                f"message {id_} is {found['state']}: only a parked or deferred one is handed out"
                " again",
                hint="what a restored database lost comes back with: postroad exchange replay",
            )


def _after(cursor: str | None) -> str | None:
    if not cursor:
        return None
    after = str(decode_cursor(cursor, str)[0])
    return after if "\x00" not in after else None


def _page(rows: list[dict[str, Any]], limit: int, key: str) -> Response:
    items = rows[:limit]
    more = len(rows) > limit
    cursor = encode_cursor(items[-1][key]) if more and items else None
    return answer({"items": items, "cursor": cursor})
