"""The intake as people run it: worker with beat, web API, outbox to RabbitMQ, command line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.rows import dict_row

from postroad.cli.components import SCHEMAS
from postroad.cli.main import cli
from postroad.testing import TestServer, wait_until
from postroad.vault import new_key
from tests.fixtures.rabbitmq import RabbitServer
from tests.fixtures.s3 import S3Server
from tests.fixtures.sshd import SshServer
from tests.integration.intake.crew import Crew

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def database(_servers: Callable[[Path | None], TestServer]) -> Iterator[str]:
    with _servers(None).clone(*SCHEMAS) as dsn:
        yield dsn


def _run(crew: Crew, *arguments: str) -> str:
    """Run a command that ends by itself; here, because a process of its own takes seconds."""
    done = CliRunner(env=crew.environment).invoke(cli, ["intake", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def _add(crew: Crew, sshd: SshServer, folder: Path, *more: str) -> dict[str, Any]:
    key_file = crew.folder / "key"
    key_file.write_text(sshd.key())
    return json.loads(
        _run(
            crew,
            *["servers", "add", "--json", "--name", "acme", "--host", "127.0.0.1"],
            *["--port", str(sshd.port), "--user", sshd.username, "--directory", str(folder)],
            *["--key-file", str(key_file), *more],
        )
    )


def _files(dsn: str) -> dict[str, dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        rows = connection.execute("select * from intake.imported_files order by id").fetchall()
    return {row["filename"]: row for row in rows}


def _is_done(dsn: str, count: int) -> bool:
    rows = _files(dsn).values()
    return [row["status"] for row in rows].count("completed") == count


def test_files_come_in_by_themselves_and_rabbitmq_is_told_of_each(
    database: str, sshd: SshServer, s3: S3Server, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    exchange, queue = rabbitmq.unique("file_events"), rabbitmq.unique("processed")
    crew = Crew.of(
        tmp_path / "crew",
        database,
        new_key(),
        s3,
        amqp_url=rabbitmq.url,
        amqp_exchange=exchange,
        amqp_queue=queue,
        port="0",
        token="some-token",
    )
    folder = sshd.new_folder()
    contents = {f"{number}.csv": os.urandom(1000 * number) for number in range(10)}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "half.csv.tmp").write_bytes(b"not yet")
    try:
        _add(crew, sshd, folder)
        assert "the login works" in _run(crew, "servers", "test", "acme")
        assert "0.csv" in _run(crew, "servers", "browse", "acme")
        crew.start("worker", "worker", "--concurrency", "2", "--beat")
        crew.start("serve", "serve")
        wait_until(lambda: _is_done(database, len(contents)), what="imported", timeout_seconds=120)
        notices = asyncio.run(_consume(rabbitmq.url, queue, len(contents)))
    except BaseException:
        print(crew.logs()[-5000:])  # noqa: T201
        raise
    finally:
        crew.close()
    rows = _files(database)
    assert sorted(rows) == sorted(contents)
    assert sorted(one["file_id"] for one in notices) == sorted(row["id"] for row in rows.values())
    assert {frozenset(one) for one in notices} == {frozenset({"file_id", "minio_path"})}
    objects = s3.objects(crew.environment["POSTROAD_INTAKE__STORE"].removeprefix("s3://"))
    assert objects == {f"acme/{name}": data for name, data in contents.items()}
    assert "completed" in _run(crew, "status")
    assert len(json.loads(_run(crew, "files", "list", "--json"))) == len(contents)
    shown = _run(crew, "files", "show", str(rows["3.csv"]["id"]))
    assert hashlib.sha256(contents["3.csv"]).hexdigest() in shown


async def _consume(url: str, name: str, count: int) -> list[dict[str, Any]]:
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.get_queue(name)
        found = []
        async with asyncio.timeout(30):
            async with queue.iterator() as messages:
                async for message in messages:
                    await message.ack()
                    found.append(json.loads(message.body))
                    if len(found) == count:
                        break
        # Nobody is told twice.
        assert await queue.get(fail=False, timeout=1) is None
    return found


TRANSFERS = "intake_transfers"


async def _empty(url: str) -> None:
    """Remove the queues that other tests of this process have left."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        for name in ("intake", TRANSFERS):
            await channel.queue_delete(name)


async def _waiting(url: str) -> int | None:
    async with await aio_pika.connect(url) as connection:
        queue = await (await connection.channel()).get_queue(TRANSFERS)
        return queue.declaration_result.message_count


def _held_by(dsn: str, session: int) -> int:
    """Return how many files the processes of a session are transferring."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select worker from intake.transfers").fetchall()
    owners = [int(worker.rpartition(":")[2]) for (worker,) in rows]
    held = 0
    for pid in owners:
        with contextlib.suppress(ProcessLookupError):
            held += os.getsid(pid) == session
    return held


@pytest.mark.parametrize("broker", ["mbus", "amqp"])
def test_two_workers_import_each_file_once_though_one_is_killed(
    database: str, sshd: SshServer, request: pytest.FixtureRequest, tmp_path: Path, broker: str
) -> None:
    settings = {"small_bytes": "0"}
    if broker == "amqp":
        url = request.getfixturevalue("rabbitmq").url
        settings["broker"] = url
        asyncio.run(_empty(url))
    crew = Crew.of(tmp_path / "crew", database, new_key(), None, **settings)
    folder = sshd.new_folder()
    contents = {f"{number:03}.dat": os.urandom(700_000) for number in range(80)}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    try:
        _add(crew, sshd, folder, "--stable-checks", "1", "--connections", "8")
        for name in ("first", "second"):
            crew.start(name, "worker", "--concurrency", "2")
        crew.start("beat", "beat")
        pids = [crew.processes[name].pid for name in ("second", "first")]
        for pid in pids:
            wait_until(
                lambda pid=pid: _held_by(database, pid) > 0,  # type: ignore[misc]
                what="files held by each worker",
                timeout_seconds=120,
            )
        crew.kill("first")
        assert not _is_done(database, len(contents))
        wait_until(lambda: _is_done(database, len(contents)), what="imported", timeout_seconds=120)
        if broker == "amqp":
            wait_until(
                lambda: asyncio.run(_waiting(url)) == 0, what="no task left", timeout_seconds=60
            )
        assert crew.processes["second"].poll() is None
    except BaseException:
        print(crew.logs()[-5000:])  # noqa: T201
        raise
    finally:
        crew.close()
    store = tmp_path / "crew" / "store" / "acme"
    assert {path.name: path.read_bytes() for path in store.iterdir()} == contents
    with psycopg.connect(database) as connection:
        completed = connection.execute(
            "select file_id from intake.file_history where status = 'completed'"
        ).fetchall()
        notices = connection.execute(
            "select (data->>'file_id')::bigint from mbus.consumen_file_events_by_default(1000)"
        ).fetchall()
    ids = sorted(row["id"] for row in _files(database).values())
    assert sorted(one for (one,) in completed) == ids
    assert sorted(one for (one,) in notices) == ids


def test_a_transfer_longer_than_the_consumer_timeout_of_rabbitmq_continues(
    database: str, sshd: SshServer, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    asyncio.run(_empty(rabbitmq.url))
    set_limits = (
        "application:set_env(rabbit, consumer_timeout, {}),"
        " application:set_env(rabbit, channel_tick_interval, {})."
    )
    rabbitmq.control("eval", set_limits.format(3000, 1000))
    crew = Crew.of(tmp_path / "crew", database, new_key(), None, broker=rabbitmq.url)
    folder = sshd.new_folder()
    size = 300 * 1024 * 1024
    with (folder / "large.dat").open("wb") as file:
        file.truncate(size)
    try:
        _add(crew, sshd, folder, "--stable-checks", "1")
        crew.start("worker", "worker", "--concurrency", "1", "--beat")
        worker = crew.processes["worker"]
        wait_until(
            lambda: _held_by(database, worker.pid) > 0, what="a transfer", timeout_seconds=120
        )
        hung = sshd.hang()
        wait_until(
            lambda: "PRECONDITION_FAILED" in crew.logs() and "timed out" in crew.logs(),
            what="RabbitMQ closed the channel",
            timeout_seconds=60,
        )
        os.kill(hung, signal.SIGCONT)
        wait_until(lambda: _is_done(database, 1), what="imported", timeout_seconds=120)
        # The worker is connected again, and takes the tasks of another file.
        (folder / "small.csv").write_bytes(b"1")
        wait_until(lambda: _is_done(database, 2), what="imported", timeout_seconds=120)
        assert worker.poll() is None
    except BaseException:
        print(crew.logs()[-5000:])  # noqa: T201
        raise
    finally:
        crew.close()
        rabbitmq.control("eval", set_limits.format(86_400_000, 60_000))
    [large] = [row for name, row in _files(database).items() if name == "large.dat"]
    assert large["lost_workers"] == 0
    assert (tmp_path / "crew" / "store" / "acme" / "large.dat").stat().st_size == size


def test_temporary_files_are_uploaded_by_tasks_on_rabbitmq(
    database: str, sshd: SshServer, rabbitmq: RabbitServer, tmp_path: Path
) -> None:
    asyncio.run(_empty(rabbitmq.url))
    crew = Crew.of(tmp_path / "crew", database, new_key(), None, broker=rabbitmq.url)
    folder = sshd.new_folder()
    (folder / "a.csv").write_bytes(b"1")
    try:
        _add(crew, sshd, folder, "--stable-checks", "1", "--way", "temporary_file")
        crew.start("worker", "worker", "--concurrency", "1", "--beat")
        wait_until(lambda: _is_done(database, 1), what="imported", timeout_seconds=120)
    except BaseException:
        print(crew.logs()[-5000:])  # noqa: T201
        raise
    finally:
        crew.close()
    assert (tmp_path / "crew" / "store" / "acme" / "a.csv").read_bytes() == b"1"
