"""The calls of administrators: lists, a process, release and requeue."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from postroad.exchange.errors import MessageConflict
from postroad.exchange.journal import ExchangeJournal
from postroad.exchange.moves import Move
from postroad.exchange.operations import refuse_requeue
from postroad.exchange.processes import Processes
from postroad.exchange.resources import CLIENTS, DATABASES, PROCESSES
from postroad.exchange.web.answers import Prepared, ProcessShown, Requeued
from postroad.exchange.web.identity import Client, administrator_of
from postroad.exchange.web.messages import known_message
from postroad.exchange.web.models import Release, Requeue
from postroad.exchange.web.processes import known
from postroad.exchange.web.values import BODY, Endpoints, answer
from postroad.operate import Page, Resource
from postroad.operate.http import add_list


def list_routes(journal: ExchangeJournal) -> APIRouter:
    """Return the routes of the lists."""
    routes = APIRouter(tags=["administration"])

    async def read(resource: Resource, *given: Any, **paging: Any) -> Page:
        return await journal.repeat(lambda connection: resource.page(connection, *given, **paging))

    for path, resource in (
        ("/processes", PROCESSES),
        ("/databases", DATABASES),
        ("/clients", CLIENTS),
    ):
        add_list(routes, path, resource, partial(read, resource), administrator_of)
    return routes


def add_administration(call: Endpoints, processes: Processes) -> None:
    """Add the calls that are not lists."""
    journal, mover = processes.journal, processes.mover

    @call("GET", "/processes/{id}", ProcessShown, 403, 404)
    async def show_process(caller: Client, id: str) -> Response:
        """Show a process with its files and its history."""
        caller.require_admin()
        found = await processes.shown(known(id))
        for file in found["files"]:
            del file["number"]
        del found["deadline"]
        return answer(found)

    @call("POST", "/processes/{id}/release", Prepared, 403, 404, 409, *BODY)
    async def release(caller: Client, id: str, given: Release | None = None) -> Response:
        """End a process by hand; one that is ready to commit needs its outcome."""
        caller.require_admin()
        given = given or Release()
        outcome = {"outcome": given.outcome, "error": given.reason}
        return answer(await processes.end("release", caller.id, known(id), **outcome))

    @call("POST", "/messages/{id}/requeue", Requeued, 403, 404, 409, *BODY)
    async def requeue(caller: Client, id: str, given: Requeue | None = None) -> Response:
        """Hand a parked or deferred message out again."""
        caller.require_admin()
        given = given or Requeue()
        selected = given.sender, given.database, given.recipient
        found = await journal.call("requeue", journal.epoch, known_message(id), *selected)
        refuse_requeue(found, id)
        moves = Move.planned(found)
        if await mover.place(moves):
            raise MessageConflict(
                f"the file of message {id} is missing; it stays parked",
                hint="put the right file into the folder Error, then requeue it again",
            )
        await mover.record(moves)
        return answer({"status": "OK", "state": found["state"]})
