"""A bucket that is throttled, answers with errors and loses answers: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.fixtures.exchange import Caller, LocalExchange
from tests.fixtures.s3 import S3Server
from tests.integration.exchange.object_store.conftest import Store, checked

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

SENDERS, MESSAGES = 6, 15
SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
# Refused; done, and the answer lost; done, and answered by an error; done.
FAULTS = {"refused": 20, "lost": 10, "wrong": 10, "none": 60}


class FlakyBucket:
    """A proxy in front of an S3 server."""

    def __init__(self, port: int) -> None:
        self.is_flaky = False
        self.faults = Counter[str]()
        chance = random.Random(5)
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                # The client closes its connections whenever it likes.
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                (fault,) = chance.choices([*FAULTS], [*FAULTS.values()])
                fault = fault if bucket.is_flaky else "none"
                bucket.faults[f"{self.command} {fault}"] += 1
                status, headers, answer = 503, {"Content-Length": str(len(SLOW_DOWN))}, SLOW_DOWN
                if fault != "refused":
                    server = http.client.HTTPConnection("127.0.0.1", port)
                    server.request(self.command, self.path, body, dict(self.headers))
                    found = server.getresponse()
                    content = found.read()
                    if fault == "none":
                        status, headers, answer = found.status, dict(found.headers), content
                        if headers.pop("Transfer-Encoding", None):
                            headers["Content-Length"] = str(len(content))
                    server.close()
                if fault == "lost":
                    self.close_connection = True
                    return
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass  # noqa: N815 - names of http.server

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def store(s3: S3Server) -> Store:
    return Store(s3)


@contextmanager
def flaky(store: Store) -> Iterator[FlakyBucket]:
    bucket = FlakyBucket(store.server.port)
    thread = threading.Thread(target=bucket.server.serve_forever)
    thread.start()
    try:
        yield bucket
    finally:
        bucket.server.shutdown()
        thread.join()
        bucket.server.server_close()


async def _until_done(caller: Caller, method: str, path: str, body: Any) -> Any:
    """Repeat a call while the store fails, as the client library does."""
    while True:
        status, answer = await caller.call(method, path, json=body)
        if status != 503:
            assert status in (200, 201), answer
            return answer


async def _send(caller: Caller) -> None:
    for number in range(MESSAGES):
        body = {"id": f"{caller.id}-{number}", "database": "sales", "body": {"n": number}}
        await _until_done(caller, "POST", "/messages", body)


async def _work(caller: Caller, effects: Counter[str]) -> None:
    """Process messages one by one; the effect counts when the process is committed."""
    number = 0
    while len(effects) < SENDERS * MESSAGES:
        number += 1
        wish = {"database": "sales", "attempt": f"a{number}", "max_files": 5}
        answer = await _until_done(caller, "POST", "/processes", wish)
        if answer["status"] != "STARTED":
            await asyncio.sleep(0)
            continue
        process = answer["process"]
        for file in process["files"]:
            assert file["body"] == {"n": int(file["id"].rpartition("-")[2])}
        path = f"/processes/{process['id']}"
        reply = {"name": f"r{number}", "recipient": "erp", "body": {"n": number}}
        answer = await _until_done(caller, "POST", f"{path}/prepare", {"replies": [reply]})
        assert answer == {"status": "OK"}
        effects.update(file["id"] for file in process["files"])
        assert await _until_done(caller, "POST", f"{path}/commit", {}) == {"status": "OK"}


async def test_a_flaky_bucket_loses_and_doubles_nothing(database: str, store: Store) -> None:
    with flaky(store) as bucket:
        settings = store.settings | {"s3_endpoint": bucket.endpoint}
        local = LocalExchange(database, store.root, **settings)
        try:
            await local.server.start()
            await local.server.ready()
            senders = [local.caller(f"phone{number}") for number in range(SENDERS)]
            effects = Counter[str]()
            bucket.is_flaky = True
            async with asyncio.TaskGroup() as group:
                for sender in senders:
                    group.create_task(_send(sender))
                group.create_task(_work(local.caller("erp"), effects))
            bucket.is_flaky = False
            assert set(effects.values()) == {1}
            states = local.rows("select kind, state from exchange.message")
            found = Counter((row["kind"], row["state"]) for row in states)
            assert found["message", "done"] == SENDERS * MESSAGES
            assert set(found) == {("message", "done"), ("reply", "waiting")}
            # Objects whose PUT was answered by an error, and that no row names, are removed later.
            wrong = {kind for kind, _, _ in checked(local)}
            assert wrong <= {"unlisted"}
            assert local.alerts() == []
            for fault in FAULTS:
                assert bucket.faults[f"PUT {fault}"] > 0
        finally:
            await local.close()
