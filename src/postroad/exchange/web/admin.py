"""What administrators see and do, behind an admin's secret."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from postroad.exchange.desk import Desk
from postroad.exchange.errors import MessageConflict, MessageNotFound, ProcessNotFound
from postroad.exchange.names import is_id
from postroad.exchange.operations import refuse_requeue
from postroad.exchange.placement import Move
from postroad.exchange.processes import Processes
from postroad.exchange.resources import CLIENTS, DATABASES, PROCESSES
from postroad.exchange.web.answers import Prepared, ProcessShown, Requeued
from postroad.exchange.web.identity import Identity
from postroad.exchange.web.models import Release, Requeue
from postroad.exchange.web.processes import is_process_id
from postroad.exchange.web.values import answer, body_of, described, parsed
from postroad.operate import Page, Resource
from postroad.operate.http import add_list
from postroad.web import problem_responses

__all__ = ["admin_routes"]

REQUEUE = (
    "select exchange.requeue(p_epoch => %s, p_id => %s, p_sender => %s, p_database => %s,"
    " p_recipient => %s)"
)

HIDDEN = ("number", "placed", "temporary")


def admin_routes(identity: Identity, processes: Processes, desk: Desk) -> APIRouter:
    """Return the routes of administrators."""
    routes = APIRouter(tags=["administration"])

    async def read(resource: Resource, *given: Any, **paging: Any) -> Page:
        async with desk.journal.connection() as connection:
            return await resource.page(connection, *given, **paging)

    for path, resource in (
        ("/processes", PROCESSES),
        ("/databases", DATABASES),
        ("/clients", CLIENTS),
    ):
        add_list(routes, path, resource, partial(read, resource), identity.admin)

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
        refuse_requeue(found, id)
        moves = [Move.of(fact) for fact in found["moves"]]
        if await desk.place(moves):
            raise MessageConflict(
                f"the file of message {id} is missing; it stays parked",
                hint="put the right file into the folder Error, then requeue it again",
            )
        await desk.marks.place(moves)
        return answer({"status": "OK", "state": found["state"]})

    return routes
