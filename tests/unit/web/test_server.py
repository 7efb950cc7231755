"""The HTTP server as a service."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from fastapi import FastAPI

from postroad.web import WebServer
from postroad.web.server import AddressInUse


async def test_it_serves_on_a_free_port_until_it_is_stopped() -> None:
    app = FastAPI()

    @app.get("/")
    def root() -> str:
        return "here"

    async with WebServer(app) as server:
        with await asyncio.to_thread(urllib.request.urlopen, server.url) as answer:
            assert answer.read() == b'"here"'
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, server.url)


async def test_a_taken_address_is_named() -> None:
    async with WebServer(FastAPI()) as first:
        second = WebServer(FastAPI(), port=first.port)
        await second.start()
        with pytest.raises(AddressInUse, match=str(first.port)):
            await second.ready()
