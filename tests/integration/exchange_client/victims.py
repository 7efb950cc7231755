"""ERP instances that die or freeze where they are told to: a program that forks one per line.

Reads one JSON object per line and answers each with one: {engine, dsn, url, token, database, point,
action, flag}. The instance makes one process. Every call that it makes to its database or to the
exchange is a place, numbered from 1; the block itself is one, too. After the place `point` it does
the `action`:

| action | what happens |
|---|---|
| `kill` | SIGKILL |
| `stop` | SIGSTOP; the answer holds its pid, and {wait: pid} waits for its end |
| `announce` | makes the file `flag`.here and goes on when there is `flag`.go |

A point of 0 lets it live; the answer then lists the places.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from postroad.exchange.client import standalone
from tests.integration.exchange_client.erps import connect, execute

# In threads of their own or without effect, so not places.
_NO_PLACES = {"renew", "fetch", "kind_of"}


class Place:
    """Counts places and acts at one of them."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self.names: list[str] = []

    def passed(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) != self._order["point"]:
            return
        if self._order["action"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._order["action"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            flag = Path(self._order["flag"])
            flag.with_suffix(".here").touch()
            while not flag.with_suffix(".go").exists():
                time.sleep(0.005)


class Watched:
    """An object whose calls are places."""

    def __init__(self, target: Any, kind: str, place: Place) -> None:
        self._target = target
        self._kind = kind
        self._place = place

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value) or name in _NO_PLACES:
            return value

        def call(*arguments: Any) -> Any:
            result = value(*arguments)
            self._place.passed(f"{self._kind}.{name}")
            return result

        return call


def live(order: dict[str, Any]) -> dict[str, Any]:
    """Make one process."""
    place = Place(order)
    connection = connect(order["engine"], order["dsn"])
    session = Watched(standalone.session_of(connection), "session", place)
    exchange = Watched(
        standalone.Exchange(order["url"], order["token"], timeout=5, patience=10), "http", place
    )
    process = standalone.Process(exchange, order["database"], session, {}, True)
    try:
        with process as work:
            for file in work.files:
                statement = "insert into orders (id, process_id) values (?, ?)"
                execute(order["engine"], connection, statement, (file.id, work.id))
                work.reply(file.sender, {"taken": file.id}, reply_to=file)
            place.passed("block")
    except standalone.ExchangeClientError as failure:
        return {"raised": type(failure).__name__, "places": place.names}
    return {"raised": None, "places": place.names}


def fork(order: dict[str, Any]) -> dict[str, Any]:
    """Let an instance live, and say how it ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            os.write(writer, json.dumps(live(order)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    ENDS[pid] = reader
    return {"pid": pid} if order.get("action") == "announce" else wait(pid)


ENDS: dict[int, int] = {}


def wait(pid: int) -> dict[str, Any]:
    """Wait until an instance has ended or stopped."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return {"pid": pid, "stopped": True}
    with os.fdopen(ENDS.pop(pid), "rb") as said:
        text = said.read()
    killed = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {**(json.loads(text) if text else {}), "killed": killed}


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        answer = wait(order["wait"]) if "wait" in order else fork(order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
