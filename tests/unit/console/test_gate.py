"""Which names of ours the gate knows."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from postroad.cli.parts import PartContext
from postroad.cli.web import WebService
from postroad.console.gate import Gate
from postroad.console.looks import Looks
from postroad.settings import HttpSettings


class Nobody:
    """Stands for settings and accounts that are not asked."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


@pytest.mark.parametrize(
    ("name", "status"), [("road.example", 200), ("localhost", 200), ("evil.example", 421)]
)
async def test_the_name_that_the_command_line_gave_is_ours(name: str, status: int) -> None:
    application = Nobody(settings=Nobody(http=HttpSettings(port=8080)))
    context = PartContext(application, "", {"host": "road.example", "port": 0})  # type: ignore[arg-type]
    http = WebService(context)._http()
    assert (http.host, http.port) == ("road.example", 0)
    gate = Gate(PlainTextResponse("in"), Nobody(), Looks(), host=http.host)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gate)) as client:
        assert (await client.get(f"http://{name}/console/login")).status_code == status
