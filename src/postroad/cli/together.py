"""Several services as one: started in order, stopped together; if one fails, all end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from postroad.service import Service


class Together(Service):
    """Runs services side by side."""

    def __init__(self, name: str, services: Sequence[Service]) -> None:
        super().__init__(name)
        self.services = services

    async def run(self) -> None:
        """Run until stopped, or until one of them ends, which is a failure."""
        async with AsyncExitStack() as running:
            for service in self.services:
                await running.enter_async_context(service)
            self.announce_ready()
            asked = asyncio.create_task(self.stopping.wait())
            joins = {asyncio.create_task(service.join()): service for service in self.services}
            await asyncio.wait({asked, *joins}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            for join, service in joins.items():
                if join.done():
                    join.result()
                    if not self.stopping.is_set():
                        raise RuntimeError(f"{service.name} ended without being stopped")
                join.cancel()
