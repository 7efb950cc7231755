"""The web service: the console, metrics, health, and the APIs that components mount."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from fastapi import FastAPI

from postroad import __version__
from postroad.bridge.addresses import Addresses
from postroad.bus import AsyncBus
from postroad.cli.coordination_databases import NAMES, find_databases
from postroad.cli.exchange import exchange_root
from postroad.cli.parts import PartContext
from postroad.cli.parts_intake import make_context
from postroad.console.accounts import Accounts
from postroad.console.application import add_console, add_health
from postroad.console.cache import Cache
from postroad.console.connections import Connections, connect_directly
from postroad.console.context import Components, Context
from postroad.console.gate import PREFIX
from postroad.console.history import History
from postroad.exchange.files import open_storage
from postroad.intake.probe import try_server
from postroad.postgres.connections import open_async_pool
from postroad.service import Service
from postroad.web.application import prepare
from postroad.web.mounts import Mounts
from postroad.web.server import WebServer

POOL_SIZE = 5


class WebService(Service):
    """Serves the pages; NiceGUI supports one application per process, so it runs once."""

    def __init__(self, context: PartContext) -> None:
        super().__init__("web")
        self._context = context
        self.url: str | None = None

    async def run(self) -> None:
        """Serve until stopped."""
        dsn, loaded = self._context.dsn, self._context.application.loaded
        settings, mounts = loaded.settings, self._context.mounts or Mounts()
        is_pooled = settings.database.is_pooled
        wishes = self._context.wishes
        http = settings.http.override(host=wishes.get("host"), port=wishes.get("port"))
        async with contextlib.AsyncExitStack() as opened:
            pool = await open_async_pool(
                dsn, max_size=POOL_SIZE, application_name="postroad console", is_pooled=is_pooled
            )
            opened.push_async_callback(pool.close)
            bus = await opened.enter_async_context(AsyncBus(dsn, listen=not is_pooled))
            cache = Cache()
            history = await opened.enter_async_context(History(bus, cache))
            context = Context(
                bus=bus,
                accounts=Accounts(pool),
                settings=settings.console,
                http=http,
                history=history,
                connections=Connections(pool.connection),
                components=_components(self._context, opened),
                cache=cache,
                crash=self._context.crash,
            )
            mounts.app = FastAPI(title="Postroad", version=__version__, redoc_url=None)
            prepare(mounts.app)
            add_health(mounts.app, context)
            add_console(mounts.app, context)
            server = WebServer(
                mounts, host=http.host, port=http.port, http=http, form_paths=(f"{PREFIX}/",)
            )
            await opened.enter_async_context(server)
            self.url = mounts.url = server.url
            port = urlsplit(server.url).port
            # The settings page shows the actual port, which an option may have set.
            context.effective = [
                replace(one, value=port, source="command line")
                if one.name == "http.port" and one.value != port
                else one
                for one in loaded.effective()
            ]
            self.announce_ready()
            await self.stopping.wait()


def _components(context: PartContext, opened: contextlib.AsyncExitStack) -> Components:
    application, settings = context.application, context.application.settings
    databases = find_databases(settings.coordination, context.dsn)
    intake = make_context(application, context.dsn)
    engine = intake.open_engine("console")
    opened.push_async_callback(engine.close)
    return Components(
        restart=context.restart,
        logs=context.logs,
        exchange=open_storage(
            exchange_root(application), settings.exchange, settings.exchange.second_root
        ),
        bridge_addresses=Addresses.of(context.dsn, settings.bridge),
        coordination={
            part: Connections(partial(connect_directly, getattr(databases, part))) for part in NAMES
        },
        vault=intake.vault,
        try_server=partial(try_server, engine),
    )
