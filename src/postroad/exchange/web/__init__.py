"""The HTTP face of the exchange: `/exchange/v1`."""

from __future__ import annotations

from fastapi import FastAPI, Security
from starlette.responses import Response

from postroad import __version__
from postroad.exchange.desk import Desk
from postroad.exchange.intake import Intake
from postroad.exchange.processes import Processes
from postroad.exchange.replies import Replies
from postroad.exchange.web.admin import admin_routes
from postroad.exchange.web.answers import Health
from postroad.exchange.web.fast_lane import FastLane, Handler
from postroad.exchange.web.identity import Identity
from postroad.exchange.web.messages import message_routes
from postroad.exchange.web.processes import process_routes
from postroad.exchange.web.values import answer
from postroad.web import BEARER, BodyLimit, prepare, problem_responses

__all__ = ["BASE_PATH", "create_app"]

BASE_PATH = "/exchange/v1"


def create_app(desk: Desk) -> FastLane:
    """Return the application of one serving generation."""
    app = FastAPI(
        title="Postroad exchange",
        version=__version__,
        openapi_url=f"{BASE_PATH}/openapi.json",
        docs_url=f"{BASE_PATH}/docs",
        redoc_url=None,
        redirect_slashes=False,
    )
    prepare(app)
    app.add_middleware(
        BodyLimit,
        limit_bytes=desk.settings.body_limit,
        is_limited=lambda path: "/replies/" not in path,
    )
    identity = Identity(desk.journal)
    processes = Processes(desk, BASE_PATH)
    messages = message_routes(identity, Intake(desk), Replies(desk, BASE_PATH))
    process = process_routes(identity, processes, desk)
    for routes in (messages.routes, process.routes, admin_routes(identity, processes, desk)):
        # Describes the token in OpenAPI; the handlers check it themselves.
        app.include_router(routes, prefix=BASE_PATH, dependencies=[Security(BEARER)])

    @app.get(
        f"{BASE_PATH}/health",
        tags=["administration"],
        response_model=None,
        responses={200: {"model": Health}, **problem_responses(503)},
    )
    async def health() -> Response:
        """Tell whether the journal answers."""
        await desk.journal.call("select 1")
        return answer({"status": "OK", "epoch": desk.epoch, "is_full": desk.is_full})

    lanes: dict[tuple[str, str], Handler] = {
        ("POST", f"{BASE_PATH}/messages"): messages.post,
        ("POST", f"{BASE_PATH}/processes"): process.start,
        ("POST", f"{BASE_PATH}/processes/*/prepare"): process.prepare,
        ("POST", f"{BASE_PATH}/processes/*/commit"): process.commit,
    }
    return FastLane(app, lanes, desk.settings.body_limit)
