"""Clients of the exchange for measuring: plain sockets, so that they cost little themselves.

`python -m benchmarks.exchange_load PORT KIND COUNT TOKEN…` prints seconds. KIND is `intake` (each
token sends COUNT messages of 10 KiB), `cycle` (each token runs COUNT processes on a database of
its own) or `large` (each token sends COUNT messages of 1 MiB).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

BASE = "/exchange/v1"
INTAKE_BYTES, LARGE_BYTES = 10 * 1024, 1024 * 1024


class Line:
    """One connection that is kept open."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self._head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n".encode()

    def call(self, method: str, path: str, body: bytes = b"") -> Any:
        """Send a request and return the answer."""
        self._socket.sendall(
            f"{method} {BASE}{path} HTTP/1.1\r\n".encode()
            + self._head
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        status = self._file.readline()
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        answer = self._file.read(length)
        if b" 20" not in status:
            raise RuntimeError(f"{status!r} {answer[:300]!r}")
        return answer


def _send(line: Line, name: str, count: int, size: int) -> None:
    filling = "x" * size
    for number in range(count):
        id_ = f"{name}-{number}"
        line.call(
            "POST",
            "/messages",
            f'{{"id":"{id_}","database":"sales","body":"{filling}"}}'.encode(),
        )


def _cycle(line: Line, name: str, count: int) -> None:
    database = f"db-{name.rsplit('-', 1)[1]}"
    for number in range(count):
        start = {"database": database, "attempt": f"{name}-{number}", "max_files": 1}
        process = json.loads(line.call("POST", "/processes", json.dumps(start).encode()))["process"]
        # Named as ERPs name them: those of two databases with one name would wait for each other.
        reply = {"name": f"{name}-{number}", "recipient": "nobody", "body": {"ok": True}}
        path = f"/processes/{process['id']}"
        line.call("POST", f"{path}/prepare", json.dumps({"replies": [reply]}).encode())
        line.call("POST", f"{path}/commit")


def _fill(line: Line, name: str, count: int) -> None:
    database = f"db-{name.rsplit('-', 1)[1]}"
    for number in range(count):
        body = {"id": f"{name}-{number}", "database": database, "body": {"n": number}}
        line.call("POST", "/messages", json.dumps(body).encode())


def main() -> None:
    port, kind, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    tokens = sys.argv[4:]

    def work(place: int, token: str) -> None:
        line, name = Line(port, token), f"{os.getpid()}-{place}"
        match kind:
            case "intake":
                _send(line, name, count, INTAKE_BYTES)
            case "large":
                _send(line, name, count, LARGE_BYTES)
            case "fill":
                _fill(line, name, count)
            case "cycle":
                _cycle(line, name, count)

    began = time.perf_counter()
    with ThreadPoolExecutor(len(tokens)) as threads:
        # Raises the first failure: a refused call must not count as a quick one.
        list(threads.map(work, range(len(tokens)), tokens))
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
