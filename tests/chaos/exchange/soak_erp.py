"""Instances of an ERP for the soak, each a process of its own that is killed without warning.

Reads one JSON object per line: port, token, database, dsn, gaps. Forks an instance and answers its
pid. `gaps` is a file with the time of the database's last answer and the longest time between two,
which an instance continues where its predecessor was killed. The ERP's own database is PostgreSQL:
the effect of each message and the marker commit together, and whoever comes later asks the marker
by a tombstone.
"""

from __future__ import annotations

import http.client
import json
import mmap
import os
import signal
import struct
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg

PAUSE_SECONDS = 0.05
GAPS = struct.Struct("dd")

INSTALL = (
    "create table if not exists effect (id text, process text);"
    "create table if not exists marker (process text primary key, outcome text not null)"
)


class Instance:
    """Works processes off until it is killed."""

    def __init__(self, port: int, token: str, database: str, dsn: str, gaps: str) -> None:
        with Path(gaps).open("r+b") as file:
            self._gaps = mmap.mmap(file.fileno(), GAPS.size)
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}"}
        self._database = database
        self._line: http.client.HTTPConnection | None = None
        self._own = psycopg.connect(dsn)

    def run(self) -> None:
        """Work for ever."""
        while True:
            if not self.work():
                time.sleep(PAUSE_SECONDS)

    def work(self) -> bool:
        """One process from API_1 to API_4; returns whether there was one."""
        wish: dict[str, Any] = {"database": self._database, "attempt": uuid.uuid4().hex}
        answer = self._call("/processes", wish)
        if answer["status"] == "RESOLVE":
            wish["resolved"] = {id_: self._outcome(id_) for id_ in answer["processes"]}
            answer = self._call("/processes", wish)
        if answer["status"] != "STARTED":
            return False
        process = answer["process"]
        path = f"/processes/{process['id']}"
        with self._own.cursor() as cursor:
            cursor.executemany(
                "insert into effect values (%s, %s)",
                [(file["id"], process["id"]) for file in process["files"]],
            )
        reply = {"name": process["id"], "recipient": "phone", "body": len(process["files"])}
        if self._call(f"{path}/prepare", {"replies": [reply]}) != {"status": "OK"}:
            self._own.rollback()
            return False
        done = self._own.execute(
            "insert into marker values (%s, 'COMMITTED') on conflict do nothing", (process["id"],)
        )
        if done.rowcount != 1:
            # Another instance has settled it meanwhile: nothing of it may be committed.
            self._own.rollback()
            return False
        self._own.commit()
        self._call(f"{path}/commit", {})
        return True

    def _outcome(self, process: str) -> str:
        """Insert the tombstone, or read what was there before it."""
        with self._own.transaction():
            self._own.execute(
                "insert into marker values (%s, 'ABORTED') on conflict do nothing", (process,)
            )
            row = self._own.execute(
                "select outcome from marker where process = %s", (process,)
            ).fetchone()
        assert row is not None
        return str(row[0])

    def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call until an answer comes, over kills and restarts of the server."""
        while True:
            try:
                if self._line is None:
                    self._line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
                self._line.request("POST", f"/exchange/v1{path}", json.dumps(body), self._headers)
                answer = self._line.getresponse()
                found: dict[str, Any] = json.loads(answer.read())
                if answer.status == 200:
                    self._record_answer()
                    return found
                if answer.status < 500:
                    raise SystemExit(f"{path}: {answer.status} {found}")
            except (OSError, http.client.HTTPException, ValueError):
                self._line = None
                time.sleep(PAUSE_SECONDS)

    def _record_answer(self) -> None:
        # The clock is that of the machine, so it continues over the processes.
        now = time.monotonic()
        last, longest = GAPS.unpack_from(self._gaps)
        GAPS.pack_into(self._gaps, 0, now, max(longest, now - last))


def main() -> None:
    """Fork instances as they are asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        wish = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                Instance(**wish).run()
            finally:
                os._exit(1)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
