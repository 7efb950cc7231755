"""The process from which services are forked: what they all import is imported once.

A service of `postroad up` needs a second to import what it stands on, and there are fifteen of
them. The nursery imports it once, while PostgreSQL starts, and every service is a fork of it: born
within milliseconds, sharing its memory until written to.

```
supervisor ── {"id", "arguments"} + stdin, stdout, stderr ──> nursery ── fork ──> `postroad serve …`
           <── {"id", "pid"} ────────────────────────────────
           <── {"ended", "code"} ──────────────────────────── (once reaped)
```

It has one thread, no connection and no event loop of its own, so forking it is safe. It ends when
the supervisor's end of the channel is closed; services notice that by their own standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["PACKET_BYTES", "main"]

PACKET_BYTES = 131_072
# Standard input, output and errors.
STREAMS = 3
PR_SET_NAME = 15
FAILED = 70


def main(descriptor: int, modules: Sequence[str]) -> None:
    """Import, then fork for whoever holds the other end of the channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in modules:
        # Whoever needs a module that cannot be imported says so better than we could.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    # What is here now is here for good: the collector must not touch, and so copy, its pages.
    gc.collect()
    gc.freeze()
    awake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=descriptor) as channel, selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(awake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not channel:
                    os.read(awake, 4096)
                elif not _serve(channel, [awake, waker, selector.fileno()]):
                    return
            _reap(channel)


def _serve(channel: socket.socket, ours: Sequence[int]) -> bool:
    """Fork once as asked; False when nobody is there to ask any more."""
    try:
        packet, streams, _, _ = socket.recv_fds(channel, PACKET_BYTES, STREAMS)
    except ConnectionError:
        return False
    if not packet:
        return False
    asked = json.loads(packet)
    pid = os.fork()
    if pid == 0:
        for descriptor in (*ours, channel.detach()):
            os.close(descriptor)
        _become(asked["arguments"], streams)
    for descriptor in streams:
        os.close(descriptor)
    _tell(channel, {"id": asked["id"], "pid": pid})
    return True


def _become(arguments: list[str], streams: Sequence[int]) -> NoReturn:
    """Run a command in this process, which was the nursery's a moment ago."""
    code = FAILED
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        for descriptor in streams:
            os.close(descriptor)
        _name(arguments)
        sys.argv = ["postroad", *arguments]
        command = importlib.import_module("postroad.cli.main")
        command.main(arguments)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _name(arguments: Sequence[str]) -> None:
    """Let `ps` and `top` tell services apart, where the system can."""
    part = arguments[arguments.index("serve") + 1] if "serve" in arguments else "postroad"
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_NAME, f"pr {part}".encode(), 0, 0, 0)


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(channel, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(channel: socket.socket, what: dict[str, object]) -> None:
    # A supervisor that is gone is noticed by the next look at the channel.
    with contextlib.suppress(OSError):
        channel.send(json.dumps(what).encode())
