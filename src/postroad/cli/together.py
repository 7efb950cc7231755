"""Several services as one: started in order, stopped together; if one fails, all end."""

from __future__ import annotations

from collections.abc import Sequence

from postroad.service import Service


class Together(Service):
    """Runs services side by side."""

    def __init__(self, name: str, services: Sequence[Service]) -> None:
        super().__init__(name)
        self.services = services

    async def run(self) -> None:
        """Run until stopped, or until one of them ends, which is a failure."""
        try:
            for service in self.services:
                await self.supervise(service)
                await service.ready()
            self.announce_ready()
            await self.stopping.wait()
        finally:
            await self.stop_supervised()
