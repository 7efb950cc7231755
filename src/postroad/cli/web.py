"""The one HTTP application: the console, the interfaces of all rooms, metrics, health.

A room gets its mount by one line in `MOUNTS`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from postroad import __version__
from postroad.bus import AsyncBus
from postroad.cli.parts import PartContext
from postroad.cli.proxy import Proxy
from postroad.cli.web_rooms import open_rooms
from postroad.console.accounts import Accounts
from postroad.console.application import add_console, add_health
from postroad.console.database import DatabaseFacts
from postroad.console.doors import Doors
from postroad.console.gate import PREFIX
from postroad.console.history import History
from postroad.console.house import House
from postroad.console.looks import Looks
from postroad.console.pages import is_there
from postroad.console.services import ServiceBoard
from postroad.postgres.connections import open_async_pool, open_pool
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.web import WebServer, prepare

__all__ = ["MOUNTS", "Mount", "WebService", "web"]

POOL_SIZE = 5


@dataclass(frozen=True, slots=True)
class Mount:
    """A room's part of the application: where it is, and the room whose server answers."""

    path: str
    package: str
    room: str


# Rooms have servers of their own, so that neither a slow upload nor a crash there is felt here.
MOUNTS: tuple[Mount, ...] = (
    Mount("/exchange/v1", "postroad.exchange", "exchange"),
    Mount("/coordination/v1", "postroad.coordination", "coordination"),
    Mount("/intake/v1", "postroad.intake", "intake"),
)


def web(context: PartContext) -> Service:
    """Make the HTTP server."""
    return WebService(context)


class WebService(Service):
    """Opens what the pages stand on, serves, closes it."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("web")
        self._context = context
        self.answer: dict[str, Any] = {}

    async def run(self) -> None:
        """Serve until stopped."""
        http = self._http()
        async with self._house(http) as house:
            app = _application(self._context, house)
            server = WebServer(
                app, host=http.host, port=http.port, http=http, form_paths=(f"{PREFIX}/",)
            )
            async with server:
                self.answer = {"url": server.url}
                self.announce_ready()
                await self.stopping.wait()

    def _http(self) -> HttpSettings:
        """Return where to listen: as the command line said, else as the settings say."""
        told = {name: self._context.wishes.get(name) for name in ("host", "port")}
        given = {name: value for name, value in told.items() if value is not None}
        return self._context.application.settings.http.model_copy(update=given)

    @contextlib.asynccontextmanager
    async def _house(self, http: HttpSettings) -> AsyncIterator[House]:
        loaded, dsn = self._context.application.loaded, self._context.dsn
        settings = loaded.settings
        is_pooled = settings.database.is_pooled
        pool = await open_async_pool(
            dsn, max_size=POOL_SIZE, application_name="postroad console", is_pooled=is_pooled
        )
        blocking_pool = open_pool(
            dsn, max_size=POOL_SIZE, application_name="postroad console", is_pooled=is_pooled
        )
        looks = Looks()
        try:
            async with (
                AsyncBus(dsn, listen=not is_pooled) as bus,
                open_rooms(self._context) as rooms,
            ):
                yield House(
                    bus=bus,
                    accounts=Accounts(pool),
                    settings=settings.console,
                    http=http,
                    history=History(bus, looks),
                    services=ServiceBoard(pool),
                    database=DatabaseFacts(pool),
                    doors=Doors(pool, blocking_pool),
                    rooms=rooms,
                    effective=loaded.effective(),
                    looks=looks,
                )
        finally:
            await pool.close()
            blocking_pool.close()


def _application(context: PartContext, house: House) -> FastAPI:
    app = FastAPI(title="Postroad", version=__version__, redoc_url=None)
    prepare(app)
    add_health(app, house)
    for mount in MOUNTS:
        section = getattr(context.application.settings, mount.room, None)
        if is_there(mount.package) and section is not None:
            port = context.port(mount.room, section.port)
            app.mount(mount.path, Proxy(f"http://127.0.0.1:{port}", mount.room))
    add_console(app, house)
    return app
