"""The whole room running: services and bridges in one event loop, as `postroad up` runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from postroad.cli.components import SCHEMAS
from postroad.coordination import Coordinator, Reader, Writer, install_bridges, make_bridges
from postroad.coordination.sample import install_sample
from postroad.postgres import connect, connect_async
from postroad.service import Service
from postroad.testing import TestServer, wait_until_async


@dataclass
class Deployment:
    """Databases and services, by part."""

    dsns: dict[str, str]
    services: dict[str, Service] = field(default_factory=dict)

    async def run(self, part: str, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        connection = await connect_async(self.dsns[part], autocommit=True)
        try:
            cursor = await connection.execute(query.encode(), parameters or None)
            return await cursor.fetchall() if cursor.description else []
        finally:
            await connection.close()

    async def rows(self, part: str) -> list[list[tuple[Any, ...]]]:
        return [
            await self.run(part, f'select * from "{entity}" order by "Id"')
            for entity in ("DummyItem", "DummyNode")
        ]

    async def until_same(self, *readers: str, timeout_seconds: float = 20) -> None:
        """Wait until these Readers show what the Writer has."""

        async def is_same() -> bool:
            wanted = await self.rows("writer")
            return all([await self.rows(reader) == wanted for reader in readers])

        await wait_until_async(
            is_same, what="readers that show what the Writer has", timeout_seconds=timeout_seconds
        )

    async def until_finished(self, event: int) -> str:
        """Wait until an event is finished; return its state."""

        async def state() -> str | None:
            found = await self.run(
                "coordinator",
                "select state from coordination.events"
                " where event_id = %s and finished_at is not null",
                event,
            )
            return found[0][0] if found else None

        return str(await wait_until_async(state, what=f"the end of event {event}"))


@asynccontextmanager
async def open_deployment(
    server: TestServer,
    readers: Sequence[str] = ("lists",),
    quick: timedelta = timedelta(seconds=1),
    **reader_options: Any,
) -> AsyncIterator[Deployment]:
    """Run a Writer, a Coordinator and Readers with the sample's entities.

    `quick`: after how long without an answer they say things again.
    """
    async with AsyncExitStack() as stack:
        dsns = {
            part: stack.enter_context(server.clone(*SCHEMAS))
            for part in ("writer", "coordinator", *readers)
        }
        deployment = Deployment(dsns)
        await asyncio.to_thread(prepare, dsns, readers)
        bridges = make_bridges(
            dsns["writer"], dsns["coordinator"], {name: dsns[name] for name in readers}
        )
        await install_bridges(bridges)
        deployment.services = {
            "writer": Writer(dsns["writer"], resend=quick),
            "coordinator": Coordinator(dsns["coordinator"], ask=quick),
            **{
                name: Reader(dsns[name], dsns["writer"], repeat=quick, **reader_options)
                for name in readers
            },
        }
        for service in (*bridges, *deployment.services.values()):
            await stack.enter_async_context(service)

        async def is_known() -> bool:
            known = await deployment.run("coordinator", "select count(*) from coordination.reader")
            return known == [(len(readers),)]

        await wait_until_async(is_known, what="readers that are known to the Coordinator")
        yield deployment


def prepare(dsns: dict[str, str], readers: Sequence[str]) -> None:
    """Give every database its part and the sample's tables."""
    install_sample(dsns["writer"])
    for name in readers:
        install_sample(dsns[name], reader=name)
    with connect(dsns["coordinator"]) as connection:
        connection.execute("select coordination.become('coordinator', 'main')")
