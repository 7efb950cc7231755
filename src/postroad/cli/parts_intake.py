"""The services of the intake, and the context and token that its commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from postroad.cli.command_service import CommandService
from postroad.cli.components import SCHEMAS, install_all
from postroad.cli.context import Application
from postroad.cli.parts import PartContext
from postroad.intake.context import IntakeContext
from postroad.intake.notice import create_queues
from postroad.postgres import connect, require
from postroad.service import Service

if TYPE_CHECKING:
    from postroad.web.server import Publish, WebServer

SAMPLE_DISCOVER_INTERVAL = "2s"


def make_context(application: Application, dsn: str) -> IntakeContext:
    """Create the context that all parts of the intake use."""
    settings, folder = application.settings, application.data_folder
    is_pooled = settings.database.is_pooled
    return IntakeContext(dsn, settings.intake, application.vault(), folder, is_pooled)


@contextmanager
def intake_context(application: Application) -> Iterator[IntakeContext]:
    """Yield the context for the database in use; an embedded one is installed automatically."""
    with application.database() as dsn:
        if application.named_database is None:
            install_all(dsn)
        else:
            with connect(dsn) as connection:
                for schema in SCHEMAS:
                    require(connection, schema)
        context = make_context(application, dsn)
        # Consumers of notices can be created from now on, not only from the first file on.
        context.run(create_queues)
        context.close()
        yield context


def make_server(
    application: Application, context: IntakeContext, publish: Publish | None = None, **given: Any
) -> WebServer:
    """Create the server of the web API; `given` are the host and the port if options name them."""
    # FastAPI is slow to import, so only the services that need it import it.
    from postroad.intake.api import create_api
    from postroad.web.server import WebServer

    settings = application.settings.intake.override(**given)
    app = create_api(context, application.token("intake", settings.token))
    http = application.settings.http
    return WebServer(
        app, host=settings.host, port=settings.port, name="intake", http=http, publish=publish
    )


def intake(context: PartContext) -> Service:
    """Create the web interface."""
    made = make_context(context.application, context.dsn)
    return make_server(context.application, made, context.publish("/intake"))


def worker(context: PartContext) -> Service:
    """Create the Celery worker."""
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
