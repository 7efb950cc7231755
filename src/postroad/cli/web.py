"""The web service: the console, metrics, health, and the APIs that components mount."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI

from postroad import __version__
from postroad.bus import AsyncBus
from postroad.cli.parts import PartContext
from postroad.console.accounts import Accounts
from postroad.console.application import add_console, add_health
from postroad.console.cache import Cache
from postroad.console.connections import Connections, DirectConnections
from postroad.console.context import Components, Context
from postroad.console.database import DatabaseFacts
from postroad.console.gate import PREFIX
from postroad.console.history import History
from postroad.console.pages import is_there
from postroad.postgres.connections import open_async_pool
from postroad.service import Service
from postroad.settings import HttpSettings
from postroad.web.application import prepare
from postroad.web.mounts import Mounts
from postroad.web.server import WebServer

POOL_SIZE = 5


class WebService(Service):
    """Opens the connections of the pages, serves, and closes them.

    NiceGUI supports one application per process, so this runs once per process.
    """

    def __init__(self, context: PartContext) -> None:
        super().__init__("web")
        self._context = context
        self.answer: dict[str, Any] = {}

    async def run(self) -> None:
        """Serve until stopped."""
        http = self._http()
        async with self._pages_context(http) as context, context.history:
            mounts = self._context.mounts or Mounts()
            mounts.app = _application(context)
            server = WebServer(
                mounts, host=http.host, port=http.port, http=http, form_paths=(f"{PREFIX}/",)
            )
            async with server:
                mounts.url = server.url
                self.answer = {"url": server.url}
                port = urlsplit(server.url).port
                # The settings page shows the actual port, which an option may have set.
                context.effective = [
                    replace(one, value=port, source="command line")
                    if one.name == "http.port" and one.value != port
                    else one
                    for one in context.effective
                ]
                self.announce_ready()
                await self.stopping.wait()

    def _http(self) -> HttpSettings:
        """Return the address to listen on: options of the command line override the settings."""
        options = {name: self._context.wishes.get(name) for name in ("host", "port")}
        given = {name: value for name, value in options.items() if value is not None}
        return self._context.application.settings.http.model_copy(update=given)

    @contextlib.asynccontextmanager
    async def _pages_context(self, http: HttpSettings) -> AsyncIterator[Context]:
        loaded, dsn = self._context.application.loaded, self._context.dsn
        settings = loaded.settings
        is_pooled = settings.database.is_pooled
        pool = await open_async_pool(
            dsn, max_size=POOL_SIZE, application_name="postroad console", is_pooled=is_pooled
        )
        cache = Cache()
        try:
            async with (
                AsyncBus(dsn, listen=not is_pooled) as bus,
                contextlib.AsyncExitStack() as opened,
            ):
                yield Context(
                    bus=bus,
                    accounts=Accounts(pool),
                    settings=settings.console,
                    http=http,
                    history=History(bus, cache),
                    database=DatabaseFacts(pool),
                    connections=Connections(pool),
                    components=_components(self._context, opened),
                    effective=loaded.effective(),
                    cache=cache,
                    crash=self._context.crash,
                )
        finally:
            await pool.close()


def _application(context: Context) -> FastAPI:
    app = FastAPI(title="Postroad", version=__version__, redoc_url=None)
    prepare(app)
    add_health(app, context)
    add_console(app, context)
    return app


def _components(context: PartContext, opened: contextlib.AsyncExitStack) -> Components:
    """Return what the pages of the installed components need; `opened` closes it."""
    components, settings = Components(restart=context.restart), context.application.settings
    components.logs = context.logs
    if is_there("postroad.exchange"):
        from postroad.cli.exchange_context import exchange_root
        from postroad.exchange.files import open_storage

        components.exchange = open_storage(exchange_root(context.application), settings.exchange)
    if is_there("postroad.bridge.addresses"):
        from postroad.bridge.addresses import Addresses

        components.bridge_addresses = Addresses.of(context.dsn, settings.bridge)
    if is_there("postroad.coordination"):
        from postroad.cli.coordination_databases import find_databases

        databases = find_databases(settings.coordination, context.dsn)
        for part in ("writer", "coordinator", "reader"):
            components.coordination[part] = DirectConnections(getattr(databases, part))
    if is_there("postroad.intake"):
        from postroad.cli.intake_context import make_context
        from postroad.intake.probe import try_server

        intake = make_context(context.application, context.dsn)
        engine = intake.open_engine("console")
        opened.push_async_callback(engine.close)
        components.vault, components.try_server = intake.vault, partial(try_server, engine)
    return components
