"""The HTTP interface of the exchange: `/exchange/v1`."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI, Security
from starlette.responses import Response

from postroad import __version__
from postroad.exchange.intake import Intake
from postroad.exchange.mover import Mover
from postroad.exchange.processes import Processes
from postroad.exchange.resources import CLIENTS, DATABASES, PROCESSES, SERVERS
from postroad.exchange.web.answers import Health
from postroad.exchange.web.identity import Identity, administrator_of
from postroad.exchange.web.messages import add_messages
from postroad.exchange.web.processes import add_processes
from postroad.exchange.web.values import DirectRoute, Endpoints, answer
from postroad.operate import Page, Resource
from postroad.operate.http import add_list
from postroad.settings.exchange import ExchangeSettings
from postroad.web.application import BEARER, prepare
from postroad.web.limits import BodyLimit
from postroad.web.problems import problem_responses

BASE_PATH = "/exchange/v1"


def create_app(settings: ExchangeSettings, mover: Mover, intake: Intake) -> FastAPI:
    """Return the application of one server."""
    journal = mover.journal
    app = FastAPI(
        title="Postroad exchange",
        version=__version__,
        openapi_url=f"{BASE_PATH}/openapi.json",
        docs_url=f"{BASE_PATH}/docs",
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.identity = Identity(journal)
    app.router.route_class = DirectRoute
    processes = Processes(settings, mover, BASE_PATH)
    # Calls come before lists, because routes are searched in this order.
    messages = Endpoints(app, BASE_PATH, "messages")
    add_messages(messages, intake, mover, settings.inline_bytes)
    add_processes(Endpoints(app, f"{BASE_PATH}/processes", "processes"), processes)

    async def read(resource: Resource, *given: Any, **paging: Any) -> Page:
        return await journal.repeat(lambda connection: resource.page(connection, *given, **paging))

    lists = APIRouter(tags=["administration"])
    for resource in (PROCESSES, DATABASES, CLIENTS, SERVERS):
        path = resource.name.replace("exchange.", "/")
        add_list(lists, path, resource, partial(read, resource), administrator_of)
    app.include_router(lists, prefix=BASE_PATH, dependencies=[Security(BEARER)])

    @app.get(
        f"{BASE_PATH}/health",
        tags=["administration"],
        response_model=None,
        responses={200: {"model": Health}, **problem_responses(503)},
    )
    async def health() -> Response:
        """Check whether the journal answers."""
        await journal.rows("select 1")
        is_full = mover.storage.is_full
        return answer({"status": "OK", "epoch": journal.epoch, "is_full": is_full})

    prepare(app)
    app.add_middleware(
        BodyLimit, limit_bytes=settings.body_limit, is_limited=lambda path: "/replies/" not in path
    )
    return app
