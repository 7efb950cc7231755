"""Whatever is sent to the one port of `postroad up`, no service answers with a server error.

Every operation of every OpenAPI document gets requests that the document allows and forbids, and
every service gets paths and headers that no client library would send.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from postroad.exchange import operations
from postroad.postgres import EmbeddedServer, run_blocking
from postroad.testing.run_folder import run_folder

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
REQUESTS = 100 if IS_FULL else 3
SERVICES = ("exchange", "intake", "coordination", "gateway", "web")
TOKEN = "a-token-of-tests"
DOCUMENTS = {
    "exchange": "/exchange/v1/openapi.json",
    "intake": "/intake/openapi.json",
    "coordination": "/coordination/v1/openapi.json",
    "web": "/openapi.json",
}
# Connects to the host that the request names; never ends.
LEFT_OUT = re.compile(r"/test$|/changes$")
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800 if IS_FULL else 240)]


@dataclass(frozen=True)
class Surface:
    """A running `postroad up`."""

    url: str
    tokens: dict[str, str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@pytest.fixture(scope="session")
def surface() -> Iterator[Surface]:
    folder = run_folder() / f"surface-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", "from postroad.cli import run; run()", "up", "--port", "0"]
        + [f"--only={name}" for name in SERVICES],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "POSTROAD_DATA_FOLDER": str(folder),
            "POSTROAD_INTAKE__TOKEN": TOKEN,
            "POSTROAD_COORDINATION__TOKEN": TOKEN,
        },
    )
    try:
        assert process.stdout is not None
        table: dict[str, str] = {}
        for line in process.stdout:
            if parts := re.match(r"^(\S.*?)\s{2,}(\S.*?)\s*$", line):
                table[parts[1]] = parts[2]
            if "Ctrl-C stops everything" in line:
                break
        admin = run_blocking(
            table["database (embedded)"], operations.add_client, "admin", is_admin=True
        ).token
        tokens = dict.fromkeys(DOCUMENTS, TOKEN) | {"exchange": admin}
        yield Surface(table["console"].removesuffix("/console"), tokens)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=90)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
        EmbeddedServer(folder).halt()


@pytest.mark.parametrize("service", DOCUMENTS)
def test_no_operation_answers_with_a_server_error(surface: Surface, service: str) -> None:
    schema = schemathesis.openapi.from_url(surface.url + DOCUMENTS[service])
    headers = {"Authorization": f"Bearer {surface.tokens[service]}"}
    called = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if LEFT_OUT.search(operation.path):
            continue

        @settings(
            max_examples=REQUESTS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            answer = case.call(headers=headers, timeout=60)
            assert answer.status_code < 500, (case.method, case.path, case.body, answer.text)

        call()
        called += 1
    assert called >= 3


PATHS = (
    "%00", "a%00b", "%0a", "%0d%0aX-A:%20b", "%23", "%2e%2e", "%2e%2e/%2e%2e/console/bus", "%252e",
    "%ff", "%c0%ae", "%F0%9F%98%80", "a" * 3000, "/", "..;/", "?a=%00", "?after=%00",
    "?limit=99999999999999999999", "?next=//[", "%",
)  # fmt: skip
HEADERS = (
    "X-A: \xe9", "Accept: \xe9", "Authorization: Bearer", "Authorization: Bearer ",
    "Authorization: Bearer \xe9", "Authorization: \xe9 x", "Cookie: postroad_session=\xe9; \x80=1",
    "Cookie: postroad_session=", "Referer: http://[", "Accept-Language: \xe9;q=x",
    "If-Match: \xe9", "Last-Event-ID: \xb2", "traceparent: \xe9", "X-Forwarded-For: \xe9",
    "X-Forwarded-Proto: \xe9", "Range: bytes=\xe9", "Content-Type: \xe9", "Content-Length: \xb2",
    "Origin: http://[", "Host: [", "Host: localhost", "Expect: 100-continue",
    "Transfer-Encoding: x",
)  # fmt: skip
PREFIXES = (
    "/exchange/v1/messages/", "/exchange/v1/processes/", "/intake/v1/servers/",
    "/intake/v1/files/", "/coordination/v1/events/", "/coordination/v1/entities/DummyItem/",
    "/console/login", "/console/language/", "/console/bus/queues/", "/console/", "/metrics", "/",
)  # fmt: skip


def status_of(surface: Surface, request: str) -> int:
    """Send bytes as given and return the status; 0 when the server only closes the connection."""
    with socket.create_connection(("127.0.0.1", surface.port), timeout=60) as connection:
        connection.sendall(request.encode("latin-1"))
        answer = connection.makefile("rb").readline().split()
    return int(answer[1]) if answer else 0


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_path_or_header_is_a_server_error(surface: Surface, prefix: str) -> None:
    token = surface.tokens.get(prefix.split("/")[1], TOKEN)
    usual = f"Host: 127.0.0.1:{surface.port}\r\nConnection: close\r\n"
    requests = [
        f"{method} {prefix}{path} HTTP/1.1\r\n{usual}Authorization: Bearer {token}\r\n\r\n"
        for path in PATHS
        for method in ("GET", "POST", "DELETE")
    ]
    requests += [
        f"{method} {prefix} HTTP/1.1\r\n{usual}{header}\r\n\r\n"
        for header in HEADERS
        for method in ("GET", "POST")
    ]
    faults = {one[:160]: found for one in requests if (found := status_of(surface, one)) >= 500}
    assert faults == {}


def test_two_hosts_are_refused_and_the_health_stays_good(surface: Surface) -> None:
    two = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{surface.port}\r\nHost: evil.example\r\n\r\n"
    assert status_of(surface, two) == 400
    assert httpx.get(f"{surface.url}/readyz").status_code == 200
