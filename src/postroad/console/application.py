"""Adds the console to an application: pages, login, gate, metrics, health."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from pathlib import Path

import psycopg
from fastapi import FastAPI, Request
from nicegui import ui
from psycopg_pool import PoolTimeout
from pydantic import SecretStr
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from postroad.console.api import add_api
from postroad.console.connections import Connections
from postroad.console.context import Context
from postroad.console.gate import PREFIX, Gate
from postroad.console.login import login_router
from postroad.console.metrics import metrics_text
from postroad.console.pages import add_pages
from postroad.postgres.calls import value
from postroad.web.errors import TokenMissing
from postroad.web.tokens import bearer_token, hash_token, is_token_of

# A health check is repeated, so its timeout is shorter than that of a request.
PROBE_TIMEOUT_SECONDS = 2.0
LOOPBACK = ("127.0.0.1", "::1")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_console(app: FastAPI, context: Context) -> None:
    """Add the console to an application, under its prefix.

    NiceGUI supports one application per process, so this is called once per process.
    """
    app.include_router(login_router(context))
    if context.settings.oidc.issuer:
        # Imported only when it is used, because it needs another library.
        from postroad.console.oidc import oidc_router

        app.include_router(oidc_router(context))
    folder = str(files("postroad.console").joinpath("static"))
    app.mount(f"{PREFIX}/static", StaticFiles(directory=folder), name="console-static")
    add_pages(context)
    add_api(app, context)
    app.add_api_route("/", _to_console, include_in_schema=False)
    ui.run_with(
        app,
        mount_path=PREFIX,
        title="Postroad",
        dark=None,
        tailwind=False,
        favicon=Path(folder) / "favicon.svg",
        show_welcome_message=False,
        binding_refresh_interval=1.0,
        reconnect_timeout=10.0,
    )
    app.add_middleware(Gate, accounts=context.accounts, cache=context.cache)


def add_health(app: FastAPI, context: Context) -> None:
    """Add `/healthz`, `/readyz` and `/metrics` to an application."""

    @app.get("/healthz", tags=["service"], summary="Check that the process responds")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", tags=["service"], summary="Check that the database is available")
    async def readyz() -> Response:
        try:
            await probe(context.connections)
        except (psycopg.Error, PoolTimeout, OSError):
            return PlainTextResponse("the database is not available\n", status_code=503)
        return PlainTextResponse("ready\n")

    @app.get("/metrics", tags=["service"], summary="Metrics for Prometheus")
    async def metrics(request: Request) -> Response:
        _check_metrics_right(request, context.http.metrics_token)
        try:
            text = await metrics_text(context)
        except (psycopg.Error, PoolTimeout, OSError):
            return PlainTextResponse("the database is not available\n", status_code=503)
        return Response(text, media_type=METRICS_TYPE)


async def probe(connections: Connections) -> None:
    """Query the database. Raises TimeoutError after two seconds, or the driver's error."""
    # In its own task, because cancelling a query on a silent connection takes seconds.
    query = asyncio.create_task(connections.run(value, "select 1"))
    done, _ = await asyncio.wait({query}, timeout=PROBE_TIMEOUT_SECONDS)
    if not done:
        query.cancel()
        raise TimeoutError("the database does not answer")
    query.result()


def _check_metrics_right(request: Request, token: SecretStr | None) -> None:
    """Check the token, because metrics contain names of queues. Raises TokenMissing."""
    if token is not None:
        if not is_token_of(bearer_token(request), hash_token(token.get_secret_value())):
            raise TokenMissing("the token is unknown", hint="it is the setting http.metrics_token")
        return
    client = request.client.host if request.client else ""
    if client not in LOOPBACK or "x-forwarded-for" in request.headers:
        raise TokenMissing(
            "metrics are open to local clients only", hint="set http.metrics_token and send it"
        )


async def _to_console() -> Response:
    return RedirectResponse(f"{PREFIX}/", status_code=303)
