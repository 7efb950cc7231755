from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from postroad.postgres import EmbeddedServer
from postroad.postgres.embedded import EmbeddedService
from postroad.postgres.errors import DataFolderRefused, ServerInUse, ServerNotStarted
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until
from postroad.testing.run_folder import run_folder

USER = """
import sys
from pathlib import Path
from postroad.postgres import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]), bin_folder=Path(sys.argv[2]) if sys.argv[2] else None):
    print("using", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(server_bin_folder: Path | None) -> Iterator[Path]:
    """A data folder that the server's user can reach, removed with the test run."""
    folder = Path(tempfile.mkdtemp(prefix="own-", dir=run_folder()))
    folder.chmod(0o755)
    (folder / "bin_folder").write_text(str(server_bin_folder or ""), encoding="utf-8")
    yield folder
    EmbeddedServer(folder, bin_folder=server_bin_folder).halt()


def _other_user(folder: Path, bin_folder: Path | None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(folder), str(bin_folder or "")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "using"
    return process


def _close(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=30)


@pytest.mark.both_versions
def test_defaults_are_safe(folder: Path, server_bin_folder: Path | None) -> None:
    with (
        EmbeddedServer(folder, bin_folder=server_bin_folder) as server,
        psycopg.connect(server.dsn()) as connection,
    ):
        for name, value in {
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "data_checksums": "on",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "password_encryption": "scram-sha-256",
        }.items():
            assert connection.execute("select current_setting(%s)", (name,)).fetchone() == (value,)
        assert connection.execute("select 'Ä' ~ '^\\w$', upper('ä')").fetchone() == (True, "Ä")
        assert server.cluster.socket_folder.stat().st_mode & 0o077 == 0
        assert server.cluster.data.stat().st_mode & 0o077 == 0


def test_roles_without_a_password_stay_outside(own_server: TestServer) -> None:
    with psycopg.connect(own_server.dsn("postgres"), autocommit=True) as connection:
        connection.execute("create role guest login")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(own_server.dsn("postgres"), user="guest")


def test_the_last_user_out_stops_the_server(folder: Path, server_bin_folder: Path | None) -> None:
    one = EmbeddedServer(folder, bin_folder=server_bin_folder)
    dsn = one.start()
    other = _other_user(folder, server_bin_folder)
    one.stop()
    assert one.is_running
    with psycopg.connect(dsn) as connection:
        connection.execute("select 1")
    _close(other)
    assert not one.is_running
    one.stop()


def test_a_killed_user_neither_stops_the_server_nor_keeps_it(
    folder: Path, server_bin_folder: Path | None
) -> None:
    one = EmbeddedServer(folder, bin_folder=server_bin_folder)
    one.start()
    other = _other_user(folder, server_bin_folder)
    other.kill()
    other.communicate(timeout=30)
    assert one.is_running
    one.stop()
    assert not one.is_running


def test_keep_running_leaves_it_to_halt(folder: Path, server_bin_folder: Path | None) -> None:
    server = EmbeddedServer(folder, bin_folder=server_bin_folder, keep_running=True)
    with server, pytest.raises(ServerInUse):
        EmbeddedServer(folder, bin_folder=server_bin_folder).halt()
    assert server.is_running
    assert server.halt()
    assert not server.halt()


@pytest.mark.both_versions
def test_users_that_come_at_once_start_it_once(
    folder: Path, server_bin_folder: Path | None
) -> None:
    command = [sys.executable, "-c", USER, str(folder), str(server_bin_folder or "")]
    users = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline().strip() == "using"
    server = EmbeddedServer(folder, bin_folder=server_bin_folder)
    assert server.is_running
    for user in users:
        _close(user)
    assert not server.is_running


@pytest.mark.chaos
@pytest.mark.both_versions
def test_what_was_committed_survives_a_killed_server(
    folder: Path, server_bin_folder: Path | None
) -> None:
    with EmbeddedServer(folder, bin_folder=server_bin_folder) as server:
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("create table kept as select 1 as id")
        postmaster = read_postmaster(server.cluster.data)
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_running, what="the postmaster is dead")
        assert server.revive()
        assert not server.revive()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("select id from kept").fetchall() == [(1,)]


@pytest.mark.chaos
async def test_the_service_brings_a_killed_server_back(
    folder: Path, server_bin_folder: Path | None
) -> None:
    server = EmbeddedServer(folder, bin_folder=server_bin_folder)
    service = EmbeddedService(server)
    service.signals.listen("revived")
    # All threads of the loop wait for the server, as blocking calls of the console do.
    is_revived = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with service:
        waiting = asyncio.create_task(asyncio.to_thread(is_revived.wait))
        postmaster = read_postmaster(server.cluster.data)
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGKILL)
        try:
            await service.signals.wait("revived")
        finally:
            is_revived.set()
            await waiting
        async with await psycopg.AsyncConnection.connect(service.dsn()) as connection:
            await connection.execute("select 1")
    assert not server.is_running


def test_a_reused_process_number_does_not_block_the_start(
    folder: Path, server_bin_folder: Path | None
) -> None:
    server = EmbeddedServer(folder, bin_folder=server_bin_folder)
    with server:
        text = (server.cluster.data / "postmaster.pid").read_text(encoding="utf-8")
    stale = [str(os.getpid()), *text.splitlines()[1:]]
    file = server.cluster.data / "postmaster.pid"
    file.write_text("\n".join(stale) + "\n", encoding="utf-8")
    server.cluster.user.own(file, 0o600)
    with server:
        assert server.is_running


@pytest.mark.both_versions
def test_an_interrupted_initdb_is_done_again(folder: Path, server_bin_folder: Path | None) -> None:
    unfinished = folder / "postgres" / "data.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "rubbish").touch()
    with EmbeddedServer(folder, bin_folder=server_bin_folder) as server:
        assert server.is_running
    assert not unfinished.exists()


@pytest.mark.both_versions
def test_a_folder_of_another_major_version_is_refused(
    folder: Path, server_bin_folder: Path | None
) -> None:
    server = EmbeddedServer(folder, bin_folder=server_bin_folder)
    with server:
        pass
    (server.cluster.data / "PG_VERSION").write_text("9\n", encoding="ascii")
    with pytest.raises(DataFolderRefused, match="belongs to PostgreSQL 9") as refused:
        EmbeddedServer(folder, bin_folder=server_bin_folder).start()
    assert "pg_upgrade" in str(refused.value.hint)


def test_a_folder_with_a_long_path_has_its_socket_elsewhere(
    folder: Path, server_bin_folder: Path | None
) -> None:
    deep = folder / ("d" * 60) / ("e" * 60)
    with EmbeddedServer(deep, bin_folder=server_bin_folder) as server:
        assert server.cluster.socket_folder.parent == Path(tempfile.gettempdir())
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("select 1")
    assert not server.cluster.socket_folder.exists()


@pytest.mark.both_versions
def test_an_option_that_the_server_refuses_is_reported(
    folder: Path, server_bin_folder: Path | None
) -> None:
    server = EmbeddedServer(
        folder, bin_folder=server_bin_folder, configuration={"shared_buffers": "nonsense"}
    )
    with pytest.raises(ServerNotStarted, match="shared_buffers"):
        server.start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_a_folder_that_is_closed_to_the_servers_user_is_replaced(
    folder: Path, server_bin_folder: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroad.postgres.embedded.SYSTEM_FOLDER", folder / "system")
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with EmbeddedServer(closed / "data", bin_folder=server_bin_folder) as server:
        assert server.cluster.home.is_relative_to(folder / "system")
    assert closed.stat().st_mode & 0o777 == 0o700
    assert list(closed.iterdir()) == []
