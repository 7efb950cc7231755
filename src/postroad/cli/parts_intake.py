"""The parts of the intake: its web interface, the Celery worker, the scheduler."""

from __future__ import annotations

from postroad.cli.command_service import CommandService
from postroad.cli.intake_context import api_token
from postroad.cli.parts import PartContext
from postroad.intake.api import create_api
from postroad.intake.context import IntakeContext
from postroad.service import Service
from postroad.web import WebServer

__all__ = ["beat", "intake", "make_context", "worker"]

SAMPLE_DISCOVER_INTERVAL = "2s"


def make_context(context: PartContext) -> IntakeContext:
    """Make what all of the intake works with."""
    application = context.application
    return IntakeContext(
        context.dsn, application.settings.intake, application.vault(), application.data_folder
    )


def intake(context: PartContext) -> Service:
    """Make the web interface; the web part leads to it."""
    port = context.port("intake", context.application.settings.intake.port)
    app = create_api(make_context(context), api_token(context.application))
    http = context.application.settings.http
    return WebServer(app, host="127.0.0.1", port=port, name="intake", http=http)


def worker(context: PartContext) -> Service:
    """Make the Celery worker."""
    return CommandService(
        "celery worker", context, ["intake", "worker", "--pool", "prefork", "--concurrency", "2"]
    )


def beat(context: PartContext) -> Service:
    """Make the scheduler; beside sample partners it looks often, so that a file comes soon."""
    environment = {}
    is_default = "intake.discover_interval" not in context.application.loaded.sources
    if is_default and context.wishes.get("has_sample"):
        environment["POSTROAD_INTAKE__DISCOVER_INTERVAL"] = SAMPLE_DISCOVER_INTERVAL
    return CommandService("celery beat", context, ["intake", "beat"], environment)
