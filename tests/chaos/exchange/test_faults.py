"""What the disk, the network, the clock and strangers may do to the exchange."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from postroad.exchange.check import check
from postroad.exchange.files import Storage
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from tests.fixtures.exchange import BASE, Caller, LocalExchange

pytestmark = pytest.mark.chaos


FAULTS = {
    "EIO on fsync": ("fsync", errno.EIO),
    "ENOSPC on write": ("write", errno.ENOSPC),
    "EMFILE on open": ("open", errno.EMFILE),
    "EROFS on open": ("open", errno.EROFS),
    "EXDEV on rename": ("rename", errno.EXDEV),
    "EACCES on rename": ("rename", errno.EACCES),
}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], None]]:
    """A function that makes one call of the file system fail, until it is called with ''."""
    failing: dict[str, int] = {}

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **more: Any) -> Any:
            is_new = name != "open" or bool(arguments[1] & os.O_CREAT)
            if name in failing and is_new:
                raise OSError(failing[name], os.strerror(failing[name]))
            return real(*arguments, **more)

        monkeypatch.setattr(f"postroad.exchange.files.os.{name}", call)

    for name in ("fsync", "write", "open", "rename"):
        wrap(name)

    def set_fault(name: str, number: int) -> None:
        failing.clear()
        if name:
            failing[name] = number

    yield set_fault
    failing.clear()


async def _cycle(phone: Caller, erp: Caller, id_: str) -> None:
    await phone.send(id_)
    process = await erp.begin()
    reply = {"name": f"r-{id_}", "recipient": "phone", "body": 1}
    assert await erp.prepare(process["id"], [reply]) == (200, {"status": "OK"})
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})


async def test_a_disk_that_fails_fails_requests_cleanly_and_all_goes_on_after(
    exchange: LocalExchange, broken: Callable[[str, int], None]
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    for number, (name, code) in enumerate(FAULTS.values()):
        message = {"id": f"m{number}", "database": "sales", "body": number}
        await phone.send(f"before{number}")
        process = await erp.begin()
        broken(name, code)
        status, problem = await phone.call("POST", "/messages", json=message)
        assert status in (503, 507), problem
        reply = {"name": f"r{number}", "recipient": "phone", "body": 1}
        status, problem = await erp.prepare(process["id"], [reply])
        assert status in (503, 507), problem
        broken("", 0)
        assert await erp.prepare(process["id"], [reply]) == (200, {"status": "OK"})
        broken(name, code)
        status, problem = await erp.end(process["id"], "commit")
        assert status in (200, 503, 507), problem
        broken("", 0)
        assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
        assert (await phone.call("POST", "/messages", json=message))[0] in (200, 201)
        process = await erp.begin()
        assert [file["id"] for file in process["files"]] == [f"m{number}"]
        await erp.prepare(process["id"])
        assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    assert len(await phone.replies()) == len(FAULTS)

    async def agrees() -> bool:
        with psycopg.connect(exchange.dsn) as connection:
            return check(connection, Storage(exchange.root)) == []

    await wait_until_async(agrees, what="rows and folders agree")


@pytest.fixture
def small_disk(exchange: LocalExchange) -> Iterator[Path]:
    """A real file system of 1 MiB for one database."""
    place = exchange.root / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting needs privileges")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_of_one_database_leaves_the_others_alone(
    exchange: LocalExchange, small_disk: Path
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("first", "tiny")
    (small_disk / "ballast").write_bytes(b"x" * 900_000)
    message = {"id": "big", "database": "tiny", "body": "x" * 300_000}
    status, problem = await phone.call("POST", "/messages", json=message)
    assert (status, problem["code"]) == (507, "exchange_storage_full")
    await _cycle(phone, erp, "elsewhere")
    (small_disk / "ballast").unlink()
    assert (await phone.call("POST", "/messages", json=message))[0] == 201
    process = await erp.begin("tiny")
    assert [file["id"] for file in process["files"]] == ["first", "big"]


@pytest.fixture
def other_disk(exchange: LocalExchange) -> Iterator[Callable[[Path], None]]:
    """A function that puts a folder on a file system of its own."""
    mounted: list[Path] = []

    def mount(place: Path) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
            check=False,
            capture_output=True,
        )
        if done.returncode:
            pytest.skip("mounting needs privileges")
        mounted.append(place)

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_folders_on_several_disks_are_moved_between_by_copy(
    exchange: LocalExchange, other_disk: Callable[[Path], None]
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    scan = {"content_base64": "AAEC", "media_type": "image/png"}
    await phone.send("m1")
    await phone.send("m2", **scan)
    process = await erp.begin()
    for folder in ("Log", "Prepared", "Unknown"):
        other_disk(exchange.root / "sales" / folder)
    reply = {"name": "r1", "recipient": "phone", "body": "kept"}
    assert await erp.prepare(process["id"], [reply]) == (200, {"status": "OK"})
    await exchange.restart()
    messages = [
        "1_m1_from_phone_to_any.json",
        "2_m2_from_phone_to_any.bin",
        "2_m2_from_phone_to_any.json",
    ]
    answer = "1_r1_from_erp_to_phone.json"
    assert exchange.files() == {"Unknown": sorted([*messages, answer])}
    assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
    assert exchange.files() == {"Log": messages, "Messages": [answer]}
    assert [item["body"] for item in await phone.replies()] == ["kept"]
    assert (exchange.root / "sales/Log/2_m2_from_phone_to_any.bin").read_bytes() == b"\x00\x01\x02"
    with psycopg.connect(exchange.dsn) as connection:
        assert check(connection, Storage(exchange.root)) == []


class Proxy:
    """Loses, delays, doubles and cuts; every call reaches the server at least once in the end."""

    def __init__(self, local: LocalExchange, seed: int) -> None:
        self._local = local
        self._random = random.Random(seed)
        self._late: list[asyncio.Task[Any]] = []
        self.tally: dict[str, int] = {}

    async def call(self, caller: Caller, method: str, path: str, **more: Any) -> tuple[int, Any]:
        while True:
            fault = self._random.choice(
                ("none", "request lost", "reply lost", "doubled", "cut", "late copy")
            )
            self.tally[fault] = self.tally.get(fault, 0) + 1
            if fault == "request lost":
                continue
            if fault == "cut":
                await self._cut(caller, method, path, more)
                continue
            answer = await caller.call(method, path, **more)
            if fault == "late copy":
                self._late.append(asyncio.create_task(self._again(caller, method, path, more)))
            if fault == "doubled":
                again = await caller.call(method, path, **more)
                if method != "GET":
                    assert again[0] in (answer[0], 200), (answer, again)
            if fault != "reply lost":
                return answer

    async def _again(self, caller: Caller, method: str, path: str, more: Any) -> None:
        """A copy of a request that arrives much later, out of order."""
        for _ in range(self._random.randint(1, 6)):
            await self._local.server.signals.wait("swept")
        await caller.call(method, path, **more)

    async def _cut(self, caller: Caller, method: str, path: str, more: Any) -> None:
        """The connection breaks in the middle of the request or of the answer."""
        request = caller.http.build_request(method, f"{self._local.server.url}{BASE}{path}", **more)
        raw = f"{method} {BASE}{path} HTTP/1.1\r\n".encode()
        raw += b"".join(name + b": " + value + b"\r\n" for name, value in request.headers.raw)
        raw += b"\r\n" + request.content
        port = int(self._local.server.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw[: self._random.randint(1, len(raw))])
        await writer.drain()
        if self._random.random() < 0.5:
            with_timeout = asyncio.wait_for(reader.read(10), 0.05)
            await asyncio.gather(with_timeout, return_exceptions=True)
        writer.close()

    async def close(self) -> None:
        await asyncio.gather(*self._late, return_exceptions=True)


@pytest.fixture
async def proxy(exchange: LocalExchange) -> AsyncIterator[Proxy]:
    proxy = Proxy(exchange, 7)
    yield proxy
    await proxy.close()


async def test_a_network_that_loses_doubles_reorders_and_cuts_changes_nothing(
    exchange: LocalExchange, proxy: Proxy
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    effects: list[str] = []
    count = 12
    for number in range(count):
        message = {"id": f"m{number}", "database": "sales", "body": number}
        await proxy.call(phone, "POST", "/messages", json=message)
        start = {"database": "sales", "attempt": f"a{number}"}
        _, answer = await proxy.call(erp, "POST", "/processes", json=start)
        assert answer["status"] == "STARTED", answer
        process = answer["process"]
        path = f"/processes/{process['id']}"
        names = [file["name"] for file in process["files"]]
        await proxy.call(erp, "PUT", f"{path}/files", json={"files": names})
        await proxy.call(erp, "PUT", f"{path}/replies/up?recipient=phone", content=b"u" * 1000)
        import hashlib

        digest = hashlib.sha256(b"u" * 1000).hexdigest()
        replies = [
            {"name": "up", "recipient": "phone", "sha256": digest},
            {"name": "small", "recipient": "phone", "body": number},
        ]
        _, answer = await proxy.call(erp, "POST", f"{path}/prepare", json={"replies": replies})
        assert answer == {"status": "OK"}
        effects += [file["id"] for file in process["files"]]
        await proxy.call(erp, "POST", f"{path}/commit")
    await proxy.close()
    got: list[Any] = []
    while items := (await proxy.call(phone, "GET", "/messages"))[1]["items"]:
        for item in items:
            got.append(item["name"])
            await proxy.call(phone, "DELETE", f"/messages/{item['id']}")
    await proxy.close()
    assert effects == [f"m{number}" for number in range(count)]
    assert sorted(got) == ["small"] * count + ["up"] * count
    assert len(exchange.files()["Log"]) == count + count * 3
    assert set(exchange.files()) == {"Log"}
    assert len(proxy.tally) == 6, proxy.tally


async def test_a_client_that_sleeps_longer_than_its_time_does_nothing_twice(
    exchange: LocalExchange,
) -> None:
    await exchange.restart(started_timeout="300ms")
    phone, slow, quick = (exchange.caller(name) for name in ("phone", "slow", "quick"))
    await phone.send("m1")
    sleeping = await slow.begin()
    await exchange.until_state(sleeping["id"], "CANCELLED")
    await exchange.restart(started_timeout="60s")
    process = await quick.begin()
    await quick.prepare(process["id"])
    await quick.end(process["id"], "commit")
    assert await slow.prepare(sleeping["id"]) == (200, {"status": "CANCELLED"})
    assert (await slow.end(sleeping["id"], "commit"))[0] == 409


class StrangeClock:
    """A wall clock that a running server has, and that is set while it runs."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set_back_by(0)

    def set_back_by(self, seconds: int) -> None:
        # By rename, so that nobody reads half of it.
        written = self._file.with_suffix(".new")
        written.write_text(f"{-seconds:+d}s\n")
        written.rename(self._file)

    @property
    def environment(self) -> dict[str, str]:
        library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_clock_that_jumps_and_a_server_that_is_stopped_disturb_nothing(
    database: str, tmp_path: Path
) -> None:
    """Processes live across a day forward, two days back, and SIGSTOP longer than the time-out."""
    from postroad.exchange import operations
    from tools.crash_table.world import free_port

    tokens = {
        name: run_blocking(database, operations.add_client, name, databases=None).token
        for name in ("phone", "erp")
    }
    clock = StrangeClock(tmp_path)
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        *(".venv/bin/postroad", "--database-url", database, "exchange", "serve"),
        *("--root", str(tmp_path / "root"), "--port", str(port), "--json"),
        env={
            **os.environ,
            **clock.environment,
            "POSTROAD_EXCHANGE__STARTED_TIMEOUT": "7s",
            "POSTROAD_EXCHANGE__READY_TIMEOUT": "7s",
            "POSTROAD_EXCHANGE__SWEEP_INTERVAL": "100ms",
        },
        stdout=subprocess.PIPE,
    )

    def jumps() -> int:
        with psycopg.connect(database) as connection:
            found = connection.execute(
                "select count(*) from alerts.report where key = 'exchange/clock' and is_raise"
            ).fetchone()
        assert found is not None
        return int(found[0])

    async def jump(seconds_back: int, count: int) -> None:
        clock.set_back_by(seconds_back)

        async def is_noticed() -> bool:
            return jumps() == count

        await wait_until_async(is_noticed, what="the server has noticed the jump")

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}{BASE}", timeout=30) as http:

        async def call(who: str, method: str, path: str, body: Any = None) -> Any:
            headers = {"Authorization": f"Bearer {tokens[who]}"}
            answer = await http.request(method, path, json=body, headers=headers)
            assert answer.status_code < 300, answer.text
            return answer.json()

        async def begin(id_: str) -> str:
            await call("phone", "POST", "/messages", {"id": id_, "database": "d", "body": 1})
            wish = {"database": "d", "attempt": id_}
            process = (await call("erp", "POST", "/processes", wish))["process"]
            assert [file["id"] for file in process["files"]] == [id_]
            return f"/processes/{process['id']}"

        try:
            assert server.stdout is not None
            assert await server.stdout.readline()
            path = await begin("m1")
            await jump(-86_400, 1)
            assert await call("erp", "POST", f"{path}/prepare", {}) == {"status": "OK"}
            await jump(86_400, 2)
            assert await call("erp", "POST", f"{path}/commit") == {"status": "OK"}
            path = await begin("m2")
            server.send_signal(signal.SIGSTOP)
            await asyncio.sleep(8)
            server.send_signal(signal.SIGCONT)
            assert await call("erp", "POST", f"{path}/prepare", {}) == {"status": "OK"}
            assert await call("erp", "POST", f"{path}/commit") == {"status": "OK"}
        finally:
            server.kill()
            await server.wait()
    with psycopg.connect(database) as connection:
        outcomes = connection.execute("select distinct outcome from exchange.process").fetchall()
    assert outcomes == [("COMMITTED",)]
