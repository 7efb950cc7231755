"""`postroad up` as a newcomer runs it: real processes, killed in every way."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import LiteralString

import httpx
import psycopg
import pytest

from postroad.bus import Bus
from postroad.cli.parts import PARTS
from postroad.postgres import EmbeddedServer
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import wait_until
from tests.fixtures.up import Start, addresses

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

# The last one is a child process, the others share the process of `up`.
FEW_NAMES = ("maintenance", "web", "sample-orders", "celery-beat")
FEW = [f"--only={name}" for name in FEW_NAMES]

# On a machine that runs eight test suites at once a process may take long to start.
PATIENCE_SECONDS = 90


def look(dsn: str, query: LiteralString) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(query).fetchall()


def services(dsn: str) -> dict[str, int]:
    """Return the processes of the services that run."""
    try:
        # A supervisor that has just started again has told of a service and not of its process.
        rows = look(
            dsn,
            "select name, pid from console.services() where state = 'running' and pid is not null",
        )
    except psycopg.OperationalError:
        return {}
    return {str(name): int(str(pid)) for name, pid in rows}


def is_alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def made_in(folder: Path) -> list[Path]:
    """List what `up` has made in its data folder; the server's own folder is closed as a whole."""
    return [
        path
        for path in folder.rglob("*")
        if path.name != "bin_folder" and not path.is_relative_to(folder / "postgres" / "run")
    ]


def children(dsn: str, process: subprocess.Popen[str]) -> dict[str, int]:
    """Return the services that are processes of their own."""
    return {name: pid for name, pid in services(dsn).items() if pid != process.pid}


def test_whatever_is_killed_comes_back_and_the_interrupt_ends_everything(
    folder: Path, start: Start
) -> None:
    process = start("--port", "0", *FEW)
    table = addresses(process)
    dsn = table["database (embedded)"]
    url = table["console"].removesuffix("/console")
    assert re.fullmatch(r"\w{5}-\w{5}-\w{5}-\w{5}", table["password"])
    assert httpx.get(f"{url}/healthz").status_code == 200

    second = start("--port", "0")
    _, complaint = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 4
    assert "is already running" in complaint

    assert services(dsn).keys() == set(FEW_NAMES)
    first = children(dsn, process)
    assert first.keys() == {"celery-beat"}
    os.kill(first["celery-beat"], signal.SIGKILL)
    wait_until(
        lambda: (found := children(dsn, process)).keys() == first.keys() and found != first,
        what="the killed service runs again",
        timeout_seconds=PATIENCE_SECONDS,
    )
    killed = read_postmaster(EmbeddedServer(folder).cluster.data)
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    wait_until(
        lambda: services(dsn).keys() == set(FEW_NAMES),
        what="the server is back, and every service with it",
        timeout_seconds=PATIENCE_SECONDS,
    )
    position: LiteralString = "select (mbus.positions(array['sample_orders']))[1]"
    before = look(dsn, position)
    wait_until(
        lambda: look(dsn, position) > before, what="orders move", timeout_seconds=PATIENCE_SECONDS
    )

    assert [path for path in made_in(folder) if path.stat().st_mode & 0o007] == []
    left = children(dsn, process)
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, complaints
    assert said.endswith("stopped\n")
    assert not [name for name, pid in left.items() if is_alive(pid)]
    assert not EmbeddedServer(folder).is_running


def test_after_up_itself_was_killed_the_next_one_works_and_nothing_is_lost(
    folder: Path, start: Start
) -> None:
    process = start("--port", "0", *FEW)
    table = addresses(process)
    dsn = table["database (embedded)"]
    left = children(dsn, process)
    url = table["console"].removesuffix("/console")
    signed_in = httpx.post(
        f"{url}/console/login",
        data={"name": table["login"], "password": table["password"]},
        headers={"origin": url},
        timeout=PATIENCE_SECONDS,
    )
    assert signed_in.status_code == 303
    with Bus(dsn) as bus:
        bus.create_queue("kept", payload="text")
        bus.post("kept", "still there")
    process.kill()
    process.communicate()
    wait_until(
        lambda: not [pid for pid in left.values() if is_alive(pid)],
        what="the child processes have ended",
        timeout_seconds=PATIENCE_SECONDS,
    )
    again = start("--port", "0", *FEW)
    told = addresses(again)
    assert "postroad console password admin" in told["password"]
    with Bus(dsn) as bus:
        assert [message.data for message in bus.consume("kept")] == ["still there"]
    again.send_signal(signal.SIGTERM)
    assert again.wait(timeout=PATIENCE_SECONDS) == 0
    assert not EmbeddedServer(folder).is_running


def test_the_password_of_a_first_start_that_was_interrupted_is_not_lost(start: Start) -> None:
    first = start("--port", "0", *FEW)
    assert first.stdout is not None
    # The account is there by now, and its password was not told yet.
    assert any(line.startswith("starting maintenance") for line in first.stdout)
    first.send_signal(signal.SIGINT)
    said, complaints = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 0, complaints
    assert "password" not in said
    # The next start tells one; it is bounded, and ends by itself.
    second = start("--seconds", "0.1", "--port", "0", *FEW)
    said, complaints = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 0, complaints
    assert re.search(r"^password\s+\w{5}-\w{5}-\w{5}-\w{5}\s*$", said, re.MULTILINE)
    assert said.endswith("stopped\n")


@pytest.mark.slow
def test_the_command_for_psql_works_without_a_postgresql_of_the_system(start: Start) -> None:
    process = start("--only=maintenance", PATH="/nowhere")
    command = f"{addresses(process)['psql']} -XAtc 'select 1'"
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": "/nowhere"}, capture_output=True, check=False
    )
    assert done.stdout == b"1\n", done.stderr


def test_everything_moves_behind_one_port(start: Start, folder: Path) -> None:
    process = start("--port", "0", "--sample")
    table = addresses(process)
    dsn, url = table["database (embedded)"], table["console"].removesuffix("/console")
    named = [part.name for part in PARTS if part.is_there()]
    wait_until(
        lambda: services(dsn).keys() == set(named),
        what="every service runs",
        timeout_seconds=PATIENCE_SECONDS,
    )
    assert httpx.get(f"{url}/exchange/v1/health").status_code == 200
    token = (folder / "coordination.token").read_text().strip()
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{url}/coordination/v1/events", headers=bearer).status_code == 200
    assert httpx.get(f"{url}/coordination/v1/events").status_code == 401
    # Without a token the intake tells nobody anything, which is an answer of its own server.
    assert httpx.get(f"{url}/intake/v1/servers").json()["code"] == "web_token_missing"
    moved: tuple[LiteralString, ...] = (
        "select count(*) from exchange.process where state = 'DONE'",
        "select count(*) from intake.imported_files where status = 'completed'",
        "select count(*) from mbus.saga where finished_at is not null",
    )
    for query in moved:
        wait_until(
            lambda query=query: look(dsn, query)[0][0] != 0,
            what=query,
            timeout_seconds=PATIENCE_SECONDS,
        )
    assert "postroad_exchange_queued_messages" in httpx.get(f"{url}/metrics", timeout=30).text
    killed = children(dsn, process)
    assert killed.keys() == {"celery-worker", "celery-beat", "sample-billing"}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: (
            services(dsn).keys() == set(named)
            and not set(children(dsn, process).values()) & set(killed.values())
        ),
        what="every service is back",
        timeout_seconds=PATIENCE_SECONDS,
    )
    process.send_signal(signal.SIGINT)
    said, complaints = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, complaints
    assert said.endswith("stopped\n")
