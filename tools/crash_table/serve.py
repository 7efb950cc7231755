"""Servers under test, each a process of its own, forked from one that has everything imported.

Reads one JSON object per line: dsn, root, port, settings, ready (a link to make when it serves, to
the number of the thread that works on files) and is_held (stop before the first instruction, so
that strace can be attached). Answers the pid.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import uvloop

import postroad.exchange.web  # noqa: F401 - imported before the fork, once for all
from postroad.exchange.server import ExchangeServer
from postroad.settings.exchange import ExchangeSettings


async def _serve(wish: dict[str, Any]) -> None:
    settings = ExchangeSettings(**wish["settings"])
    server = ExchangeServer(wish["dsn"], Path(wish["root"]), settings, port=wish["port"])
    async with server:
        assert server.mover is not None
        thread = await server.mover.in_thread(threading.get_native_id)
        # A link: one call that is not among those at which it is killed.
        Path(wish["ready"]).symlink_to(str(thread))  # noqa: ASYNC240 - once
        await server.join()


def main() -> None:
    # Nobody waits for the children: they are killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        wish = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if wish["is_held"]:
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                uvloop.run(_serve(wish))
            except BaseException:  # noqa: BLE001 - told before the process ends
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
