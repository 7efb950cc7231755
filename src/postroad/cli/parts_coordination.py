"""The services of coordination: Writer, Coordinator, Reader, the Gateway, sample writers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroad.alerts import AlertRelay
from postroad.bridge import DatabaseBridge
from postroad.cli.context import Application
from postroad.cli.coordination_databases import NAMES, Databases, find_databases, prepare_database
from postroad.cli.parts import PartContext
from postroad.coordination import Coordinator, Reader, Writer, install_bridges
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.coordination.reader_service import Check
from postroad.coordination.sample import SampleWriter, install_sample
from postroad.service import Service, Together
from postroad.settings import CoordinationSettings

if TYPE_CHECKING:
    from postroad.web.server import Publish


def make_service(
    part: str, databases: Databases, settings: CoordinationSettings, checks: Sequence[Check] = ()
) -> tuple[Service, list[DatabaseBridge]]:
    """Create the Writer, the Coordinator or the Reader, and the bridges that it needs."""
    keep = settings.keep
    if part == "writer":
        poll_interval, resend = settings.poll_interval, settings.resend
        writer = Writer(databases.writer, poll_interval=poll_interval, resend=resend, keep=keep)
        return writer, writer_bridges(databases.writer, databases.coordinator)
    if part == "coordinator":
        deadline, ask = settings.deadline, settings.ask
        return Coordinator(databases.coordinator, deadline=deadline, ask=ask, keep=keep), []
    reader = Reader(
        databases.reader,
        databases.writer,
        page=settings.page,
        max_attempts=settings.max_attempts,
        wait=settings.wait,
        checks=checks,
        keep=keep,
    )
    return reader, reader_bridges(settings.reader_name, databases.reader, databases.coordinator)


def make_gateway(
    application: Application,
    databases: Databases,
    settings: CoordinationSettings,
    publish: Publish | None = None,
) -> Service:
    """Create the HTTP interface; `publish` serves it in another server."""
    # FastAPI is slow to import, so only the service that needs it imports it.
    from postroad.coordination.gateway import Gateway

    return Gateway(
        *databases,
        host=settings.host,
        port=settings.port,
        token=application.token("coordination", settings.token),
        after_timeout=settings.after_timeout,
        http=application.settings.http,
        publish=publish,
    )


class Coordination(Service):
    """Prepares the databases, then runs Writer, Coordinator, Reader and their bridges."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("coordination")
        self._settings = context.application.settings.coordination
        self._databases = _databases(context)
        self._main = context.dsn

    async def run(self) -> None:
        """Run until stopped."""
        databases, reader = self._databases, self._settings.reader_name
        sample = ("writer", "reader")
        await asyncio.to_thread(prepare, databases, reader, has_reader=True, sample=sample)
        services: list[Service] = []
        bridges: list[DatabaseBridge] = []
        for part in NAMES:
            service, needed = make_service(part, databases, self._settings)
            services.append(service)
            bridges += needed
        await install_bridges(bridges)
        # Alerts of these databases are sent and shown from the main one.
        relay = AlertRelay(databases, self._main)
        together = Together("coordination", [*bridges, *services, relay])
        async with together:
            self.announce_ready()
            await together.join_or(self.stopping)


def gateway(context: PartContext) -> Service:
    """Create the HTTP interface."""
    settings, publish = context.application.settings.coordination, context.publish("/coordination")
    return make_gateway(context.application, _databases(context), settings, publish)


def writers(context: PartContext) -> Service:
    """Create the sample Writer, which changes items continuously."""
    return SampleWriter(_databases(context).writer)


def _databases(context: PartContext) -> Databases:
    return find_databases(context.application.settings.coordination, context.dsn)


def prepare(databases: Databases, reader: str, *, has_reader: bool, sample: Sequence[str]) -> None:
    """Prepare all databases, so that services may be started in any order.

    `sample` are the roles whose databases get the entities of the sample.
    """
    prepare_database(databases.writer, "writer")
    prepare_database(databases.coordinator, "coordinator")
    if has_reader:
        prepare_database(databases.reader, "reader", reader)
    if "writer" in sample:
        install_sample(databases.writer)
    if "reader" in sample:
        install_sample(databases.reader, reader=reader)
