"""The services of coordination: Writer, Coordinator, Reader, the Gateway, sample writers."""

from __future__ import annotations

import asyncio

from postroad.alerts import AlertRelay
from postroad.cli.coordination_databases import Databases, find_databases, prepare_database
from postroad.cli.parts import PartContext
from postroad.cli.together import Together
from postroad.coordination import Coordinator, Reader, Writer, install_bridges
from postroad.coordination.bridges import reader_bridges, writer_bridges
from postroad.coordination.gateway import Gateway
from postroad.coordination.sample import SampleWriter, install_sample
from postroad.service import Service


def _databases(context: PartContext) -> Databases:
    return find_databases(context.application.settings.coordination, context.dsn)


class _Coordination(Service):
    """Prepares the databases, then runs Writer, Coordinator, Reader and their bridges."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("coordination")
        self._settings = context.application.settings.coordination
        self._databases = _databases(context)
        self._house = context.dsn

    async def run(self) -> None:
        """Run until stopped."""
        databases, settings = self._databases, self._settings
        await asyncio.to_thread(_prepare, databases, settings.reader_name)
        bridges = [
            *writer_bridges(databases.writer, databases.coordinator),
            *reader_bridges(settings.reader_name, databases.reader, databases.coordinator),
        ]
        await install_bridges(bridges)
        parts = Together(
            "coordination",
            [
                *bridges,
                Writer(
                    databases.writer,
                    poll_interval=settings.poll_interval,
                    resend=settings.resend,
                    keep=settings.keep,
                ),
                Coordinator(
                    databases.coordinator,
                    deadline=settings.deadline,
                    ask=settings.ask,
                    keep=settings.keep,
                ),
                Reader(
                    databases.reader,
                    databases.writer,
                    page=settings.page,
                    max_attempts=settings.max_attempts,
                    wait=settings.wait,
                    keep=settings.keep,
                ),
                # Alerts of these databases are sent and shown from the main one.
                AlertRelay(
                    (databases.writer, databases.coordinator, databases.reader), self._house
                ),
            ],
        )
        async with parts:
            self.announce_ready()
            await parts.join_or(self.stopping)


def coordination(context: PartContext) -> Service:
    """Make Writer, Coordinator and Reader."""
    return _Coordination(context)


def gateway(context: PartContext) -> Service:
    """Make the HTTP interface."""
    databases = _databases(context)
    settings = context.application.settings.coordination
    return Gateway(
        databases.writer,
        databases.coordinator,
        databases.reader,
        host=settings.host,
        port=settings.port,
        token=context.application.token("coordination", settings.token),
        after_timeout=settings.after_timeout,
        http=context.application.settings.http,
        publish=context.publish("/coordination"),
    )


def writers(context: PartContext) -> Service:
    """Make the sample that changes items all the time."""
    return SampleWriter(_databases(context).writer)


def _prepare(databases: Databases, reader: str) -> None:
    prepare_database(databases.writer, "writer")
    prepare_database(databases.coordinator, "coordinator")
    prepare_database(databases.reader, "reader", reader)
    install_sample(databases.writer)
    install_sample(databases.reader, reader=reader)
