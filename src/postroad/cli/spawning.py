"""How the supervisor gets a process: forked from the nursery, or started anew without one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from postroad.cli.nursery import PACKET_BYTES
from postroad.service import Service

__all__ = ["NurseryService", "Spawn", "Spawned", "spawn_anew"]

logger = logging.getLogger(__name__)

ENTRANCE = "from postroad.cli import run; run()"
NURSERY = "import sys; from postroad.cli.nursery import main; main(int(sys.argv[1]), sys.argv[2:])"
STREAM_BYTES = 65_536


class Spawned(Protocol):
    """A process that runs a command; what the supervisor needs of it."""

    @property
    def pid(self) -> int:
        """Its number, which is its group's, too."""

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None:
        """What it reads."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """What it says."""

    @property
    def stderr(self) -> asyncio.StreamReader | None:
        """What it complains about."""

    async def wait(self) -> int:
        """Wait for its end."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it."""


Spawn = Callable[[Sequence[str]], Awaitable[Spawned]]


async def spawn_anew(arguments: Sequence[str]) -> Spawned:
    """Start an interpreter for a command of ours, in a session of its own."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ENTRANCE,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


class _Forked:
    """A fork of the nursery, which tells us of its end."""

    def __init__(
        self,
        pid: int,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def end(self, code: int) -> None:
        """Note how it ended."""
        self.returncode = code
        self.stdin.close()
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - set before the event
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class NurseryService(Service):
    """Keeps a nursery; when it was killed, what it bore is ended and started anew without it."""

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__("nursery")
        self._modules = modules
        self._channel: socket.socket | None = None
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._living: dict[int, _Forked] = {}
        # Ends of processes whose birth was not told to their spawner yet.
        self._ended: dict[int, int] = {}
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Start the nursery and hear what it tells, until it or we end."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as failure:
            logger.info("no_nursery", extra={"reason": str(failure)})
            self.announce_ready()
            await self.stopping.wait()
            return
        with ours:
            ours.setblocking(False)
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    NURSERY,
                    str(theirs.fileno()),
                    *self._modules,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self._channel = ours
            self.announce_ready()
            hearing = asyncio.create_task(self._hear(ours))
            asked = asyncio.create_task(self.stopping.wait())
            await asyncio.wait({hearing, asked}, return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
            self._channel = None
        self._give_up()
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        if not self.stopping.is_set():
            logger.warning("nursery_ended", extra={"code": process.returncode})
            await self.stopping.wait()

    async def spawn(self, arguments: Sequence[str]) -> Spawned:
        """Fork a process that runs a command of ours; without a nursery start one anew."""
        if self._channel is None:
            return await spawn_anew(arguments)
        number = next(self._numbers)
        packet = json.dumps({"id": number, "arguments": list(arguments)}).encode()
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            await self._send(self._channel, packet, theirs)
            pid = await answer
        except BaseException as failure:
            # Whoever was born in spite of this finds the end of its input, and leaves.
            for descriptor in ours:
                os.close(descriptor)
            if not isinstance(failure, OSError):
                raise
            return await spawn_anew(arguments)
        finally:
            self._asked.pop(number, None)
            for descriptor in theirs:
                os.close(descriptor)
        forked = _Forked(
            pid, await _writer(ours[0]), await _reader(ours[1]), await _reader(ours[2])
        )
        if pid in self._ended:
            forked.end(self._ended.pop(pid))
        elif not self._has_nursery():
            _end_group(forked)
        else:
            self._living[pid] = forked
        return forked

    def _has_nursery(self) -> bool:
        # Asked again after each await: it may have been killed meanwhile.
        return self._channel is not None

    async def _send(self, channel: socket.socket, packet: bytes, streams: Sequence[int]) -> None:
        while True:
            try:
                socket.send_fds(channel, [packet], streams)
            except BlockingIOError:
                await asyncio.sleep(0.01)
            else:
                return

    async def _hear(self, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                packet = await loop.sock_recv(channel, PACKET_BYTES)
            except ConnectionError:
                return
            if not packet:
                return
            told: dict[str, Any] = json.loads(packet)
            if "ended" in told:
                self._note_end(told["ended"], told["code"])
            elif (answer := self._asked.get(told["id"])) is not None and not answer.done():
                answer.set_result(told["pid"])

    def _note_end(self, pid: int, code: int) -> None:
        forked = self._living.pop(pid, None)
        if forked is not None:
            forked.end(code)
        else:
            self._ended[pid] = code

    def _give_up(self) -> None:
        """End what the nursery bore: nobody would tell us of its end."""
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError("the nursery ended"))
        for forked in self._living.values():
            _end_group(forked)
        self._living.clear()


def _end_group(forked: _Forked) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(forked.pid, signal.SIGKILL)
    forked.end(-signal.SIGKILL)


async def _reader(descriptor: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=STREAM_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(descriptor, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
