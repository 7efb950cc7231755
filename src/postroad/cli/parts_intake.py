"""The services of the intake: its web interface, the Celery worker, the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI

from postroad.cli.command_service import CommandService
from postroad.cli.intake_context import api_token, make_context
from postroad.cli.parts import PartContext
from postroad.intake.api import create_api
from postroad.service import Service
from postroad.web.server import WebServer

if TYPE_CHECKING:
    from postroad.cli.parts import Publish

SAMPLE_DISCOVER_INTERVAL = "2s"


def intake(context: PartContext) -> Service:
    """Make the web interface."""
    settings = context.application.settings
    app = create_api(make_context(context.application, context.dsn), api_token(context.application))
    if (publish := context.publish("/intake")) is not None:
        return _Mounted(app, publish)
    intake = settings.intake
    return WebServer(app, host=intake.host, port=intake.port, name="intake", http=settings.http)


class _Mounted(Service):
    """The web interface as a part of the server of `up`, with its own lifespan."""

    def __init__(self, app: FastAPI, publish: Publish) -> None:
        super().__init__("intake")
        self._app = app
        self._publish = publish

    async def run(self) -> None:
        """Serve until stopped."""
        async with self._app.router.lifespan_context(self._app), self._publish(self._app):
            self.announce_ready()
            await self.stopping.wait()


def worker(context: PartContext) -> Service:
    """Make the Celery worker."""
    return CommandService(
        "celery worker", context, ["intake", "worker", "--pool", "prefork", "--concurrency", "2"]
    )


def beat(context: PartContext) -> Service:
    """Create the scheduler; with sample partners it polls often, so that files arrive quickly."""
    environment = {}
    is_default = "intake.discover_interval" not in context.application.loaded.sources
    if is_default and context.wishes.get("has_sample"):
        environment["POSTROAD_INTAKE__DISCOVER_INTERVAL"] = SAMPLE_DISCOVER_INTERVAL
    return CommandService("celery beat", context, ["intake", "beat"], environment)
