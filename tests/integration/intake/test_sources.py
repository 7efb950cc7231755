from __future__ import annotations

import asyncio
import os
import random
import signal
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asyncssh.sftp import SFTPClientHandler

from postroad.intake import Credentials, CredentialsInvalid, operations, probe
from postroad.intake.cleanup import clean_up
from postroad.intake.discovery import discover
from postroad.intake.engine import FAILURES_UNTIL_ALERT, Engine
from postroad.intake.errors import (
    CredentialsNeeded,
    HostKeyChanged,
    HostKeyUnpinned,
    LoginRefused,
    MoveFolderInvalid,
    SourceForbidden,
    SourceUnreachable,
)
from postroad.intake.notice import notify
from postroad.intake.source import Source
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from postroad.postgres import run_blocking
from postroad.testing import wait_until_async
from postroad.vault import Vault
from tests.fixtures.processes import free_port
from tests.fixtures.sshd import PASSPHRASE, PasswordSftp, SshServer
from tests.integration.intake.partner import Partner, run_once, work_off


def _alerts(partner: Partner) -> list[str]:
    return [row["title"] for row in partner.rows("select title from alerts.report order by id")]


async def test_a_first_host_key_is_pinned_and_a_changed_one_stops_the_server_and_alerts(
    engine: Engine, partner: Partner, sshd: SshServer
) -> None:
    partner.write("a.csv", b"1")
    await run_once(engine, partner)
    assert partner.server["host_key"] == sshd.host_key
    old = sshd.host_key
    sshd.change_host_key()
    await engine.pool.close()
    partner.write("b.csv", b"2")
    with pytest.raises(HostKeyChanged):
        await discover(engine, partner.server_id)
    server = partner.server
    assert server["status"] == "host_key_changed"
    assert "another host key" in server["problem"]
    assert (server["host_key"], server["seen_host_key"]) == (old, sshd.host_key)
    assert any("host key" in title for title in _alerts(partner))
    # It stays stopped: nobody looks, nobody fetches.
    assert await discover(engine, partner.server_id) is None
    assert not await dispatch(engine, partner.server_id)
    partner.run(operations.trust_host_key, partner.server_id)
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed", "b.csv": "completed"}


async def test_a_host_key_of_another_kind_is_a_changed_one_too(
    engine: Engine, partner: Partner, sshd: SshServer
) -> None:
    await run_once(engine, partner)
    assert partner.server["host_key"] == sshd.host_key
    try:
        sshd.change_host_key("-t", "ecdsa")
        await engine.pool.close()
        with pytest.raises(HostKeyChanged, match="of kind ecdsa"):
            await discover(engine, partner.server_id)
        server = partner.server
        assert (server["status"], server["seen_host_key"]) == ("host_key_changed", sshd.host_key)
        assert any("host key" in title for title in _alerts(partner))
        assert (await probe.try_server(engine, partner.server_id))["works"] is False
        partner.run(operations.trust_host_key, partner.server_id)
        assert (await probe.try_server(engine, partner.server_id))["works"] is True
    finally:
        sshd.change_host_key()


async def test_a_given_host_key_is_checked_from_the_first_login_on(
    engine: Engine, partner: Partner, sshd: SshServer
) -> None:
    other = (sshd.folder / "userkey.pub").read_text()
    partner.change(host_key=other)
    assert (await probe.try_server(engine, partner.server_id))["works"] is False
    assert partner.server["status"] == "host_key_changed"
    partner.change(host_key=sshd.host_key)
    assert (await probe.try_server(engine, partner.server_id))["works"] is True


async def test_a_password_lets_in_and_a_wrong_one_is_said_to_be_refused(
    engine: Engine, password_sftp: PasswordSftp, database: str, vault: Vault
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        row = run_blocking(
            database,
            operations.create_server,
            vault,
            Credentials(password="not the password"),
            {
                "host": "127.0.0.1",
                "port": password_sftp.port,
                "username": password_sftp.username,
                "directory": ".",
                "looks": 1,
                "trusts_first_key": True,
            },
        )
        partner = Partner(password_sftp.files, connection, vault, row["id"])
        partner.write("a.csv", b"1")
        with pytest.raises(LoginRefused):
            await discover(engine, partner.server_id)
        assert partner.server["status"] == "login_refused"
        assert "refuses the login of partner" in partner.server["problem"]
        assert partner.server["retry_at"] is not None
        run_blocking(
            database,
            operations.change_server,
            vault,
            row["id"],
            {},
            Credentials(password=password_sftp.password),
        )
        await run_once(engine, partner)
        assert partner.statuses == {"a.csv": "completed"}
        assert partner.server["status"] == "ok"


async def test_a_password_is_not_sent_to_a_host_whose_key_is_not_pinned(
    engine: Engine, password_sftp: PasswordSftp, database: str, vault: Vault
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        row = run_blocking(
            database,
            operations.create_server,
            vault,
            Credentials(password=password_sftp.password),
            {
                "host": "127.0.0.1",
                "port": password_sftp.port,
                "username": password_sftp.username,
                "directory": ".",
                "looks": 1,
            },
        )
        partner = Partner(password_sftp.files, connection, vault, row["id"])
        partner.write("a.csv", b"1")
        with pytest.raises(HostKeyUnpinned):
            await discover(engine, partner.server_id)
        assert partner.server["host_key"] is None
        assert partner.server["seen_host_key"].startswith("ssh-")
        run_blocking(database, operations.trust_host_key, row["id"])
        await run_once(engine, partner)
        assert partner.statuses == {"a.csv": "completed"}


@pytest.mark.parametrize(
    "change", [{"host": "localhost"}, {"port": 2}, {"username": "other"}, {"host_key": None}]
)
async def test_stored_credentials_are_not_sent_to_another_host(
    engine: Engine, partner: Partner, change: dict[str, Any]
) -> None:
    await probe.try_server(engine, partner.server_id)
    before = partner.server
    with pytest.raises(CredentialsNeeded):
        partner.run(operations.change_server, partner.vault, partner.server_id, change)
    assert partner.server == before
    partner.change(**change)
    name, value = change.popitem()
    assert partner.server[name] == value


@pytest.mark.parametrize("name", ["userkey", "lockedkey", "sealedkey", "certkey"])
async def test_keys_with_passphrase_and_certificates_let_in(
    engine: Engine, partner: Partner, sshd: SshServer, name: str
) -> None:
    if name == "sealedkey":
        pytest.importorskip("bcrypt", reason="OpenSSH's own format needs bcrypt")
    credentials = Credentials(
        private_key=sshd.key(name),
        passphrase=PASSPHRASE if name in ("lockedkey", "sealedkey") else None,
        certificate=(sshd.folder / "certkey-cert.pub").read_text() if name == "certkey" else None,
    )
    partner.run(operations.change_server, partner.vault, partner.server_id, {}, credentials)
    answer = await probe.try_server(engine, partner.server_id)
    assert answer == {"works": True, "host_key": sshd.host_key, "is_empty": True}


def test_a_key_that_cannot_be_read_is_refused_without_being_repeated() -> None:
    planted = "-----BEGIN OPENSSH PRIVATE KEY-----\nplanted-key-5512\n"
    with pytest.raises(CredentialsInvalid) as refused:
        Credentials(private_key=planted)
    assert "planted" not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_server_that_is_down_waits_with_growing_pauses_and_blocks_nobody(
    engine: Engine, partner: Partner, sshd: SshServer
) -> None:
    down = Partner.at(sshd, partner.connection, partner.vault, name="down")
    down.change(port=free_port())
    partner.write("a.csv", b"1")
    with pytest.raises(SourceUnreachable):
        await discover(engine, down.server_id)
    assert down.server["status"] == "unreachable"
    assert await discover(engine, down.server_id) is None, "its pause is not over"
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}
    first = down.server["retry_at"]
    partner.connection.execute("update intake.sftp_servers set retry_at = null")
    with pytest.raises(SourceUnreachable):
        await discover(engine, down.server_id)
    assert down.server["failures"] == 2
    assert down.server["retry_at"] > first


async def test_a_server_that_lets_in_and_does_not_answer_is_given_up(
    engine: Engine, partner: Partner, sshd: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.write("a.csv", b"1")
    await discover(engine, partner.server_id)
    monkeypatch.setattr(Source, "answer_timeout", timedelta(seconds=1))
    partner.connection.execute("update intake.sftp_servers set failures = 1")
    opendir = SFTPClientHandler.opendir

    async def hang_after(handler: SFTPClientHandler, path: bytes) -> object:
        # The session process goes on to answer keepalives; what hangs is the sftp server.
        handle = await opendir(handler, path)
        hung.append(sshd.hang())
        return handle

    hung: list[int] = []
    monkeypatch.setattr(SFTPClientHandler, "opendir", hang_after)
    for failures in (2, FAILURES_UNTIL_ALERT):
        partner.connection.execute("update intake.sftp_servers set retry_at = null")
        with pytest.raises(SourceUnreachable, match="no answer in time"):
            await discover(engine, partner.server_id)
        assert len(hung) == failures - 1
        server = partner.server
        assert (server["status"], server["failures"]) == ("unreachable", failures)
        assert server["scan_until"] is None
        os.kill(hung[-1], signal.SIGKILL)
    assert _alerts(partner) == ["SFTP server 127.0.0.1 cannot be used"]
    monkeypatch.setattr(SFTPClientHandler, "opendir", opendir)
    partner.connection.execute("update intake.sftp_servers set retry_at = null")
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}
    assert partner.server["status"] == "ok"


async def test_a_server_that_dies_during_transfers_costs_no_try(
    engine: Engine, partner: Partner, sshd: SshServer
) -> None:
    for number in range(20):
        partner.write(f"{number}.bin", random.Random(number).randbytes(3_000_000))
    await discover(engine, partner.server_id)
    working = asyncio.create_task(work_off(engine, partner))

    async def is_moving() -> bool:
        return any(row["status"] == "downloading" for row in partner.files)

    await wait_until_async(is_moving, what="a transfer under way")
    sshd.kill()
    await working
    assert partner.server["status"] == "unreachable"
    assert {row["attempts"] for row in partner.files} == {0}
    sshd.start()
    partner.connection.execute("update intake.sftp_servers set retry_at = null")
    await work_off(engine, partner)
    assert set(partner.statuses.values()) == {"completed"}
    assert len(partner.notices()) == 20
    assert partner.server["status"] == "ok"


async def test_a_folder_that_is_not_there_is_said_to_be_missing(
    engine: Engine, partner: Partner
) -> None:
    partner.change(directory=f"{partner.folder}/absent")
    with pytest.raises(SourceForbidden):
        await discover(engine, partner.server_id)
    assert partner.server["status"] == "forbidden"
    assert "does not exist" in partner.server["problem"]


async def test_a_forbidden_file_fails_after_the_last_try_with_its_reason_and_can_be_retried(
    engine: Engine, partner: Partner
) -> None:
    secret = partner.write("secret.csv", b"1")
    partner.write("open.csv", b"2")
    secret.chmod(0)
    await discover(engine, partner.server_id)
    for _ in range(engine.settings.max_attempts):
        partner.connection.execute("update intake.imported_files set next_try_at = now()")
        await work_off(engine, partner)
    assert partner.statuses == {"secret.csv": "failed", "open.csv": "completed"}
    row = partner.file("secret.csv")
    assert row["attempts"] == engine.settings.max_attempts
    assert row["error_message"] == "secret.csv may not be read: permission denied"
    secret.chmod(0o644)
    assert partner.run(operations.retry, [row["id"]])["ids"] == [row["id"]]
    await work_off(engine, partner)
    assert partner.statuses["secret.csv"] == "completed"


async def test_failed_tries_wait_longer_and_longer(engine: Engine, partner: Partner) -> None:
    partner.write("secret.csv", b"1").chmod(0)
    await discover(engine, partner.server_id)
    pauses = []
    for _ in range(4):
        partner.connection.execute("update intake.imported_files set next_try_at = now()")
        await work_off(engine, partner)
        pauses += [
            row["pause"]
            for row in partner.rows(
                "select next_try_at - updated_at as pause from intake.imported_files"
            )
        ]
    assert pauses[3] > pauses[0] * 2


def test_a_folder_to_move_to_that_repeats_the_watched_one_is_rejected(partner: Partner) -> None:
    with pytest.raises(MoveFolderInvalid, match="in/in/done"):
        partner.change(directory="in", after_import="move", move_to="in/done")
    partner.change(directory="in", after_import="move", move_to="done")


async def test_after_the_import_files_are_left_deleted_or_moved(
    engine: Engine, partner: Partner
) -> None:
    left = partner.write("left.csv", b"1")
    await run_once(engine, partner)
    assert left.exists()
    partner.change(after_import="delete")
    gone = partner.write("gone.csv", b"2")
    await run_once(engine, partner)
    assert not gone.exists()
    partner.change(after_import="move", move_to="done")
    moved = partner.write("moved.csv", b"3")
    await run_once(engine, partner)
    assert not moved.exists()
    assert (partner.folder / "done" / "moved.csv").read_bytes() == b"3"
    assert left.exists()


@pytest.mark.parametrize("folder", ["done", "./sub/../done/", "{root}/done"])
async def test_a_folder_that_files_are_moved_to_is_not_looked_into(
    engine: Engine, partner: Partner, folder: str
) -> None:
    partner.change(after_import="move", move_to=folder.format(root=partner.folder), max_depth=3)
    partner.write("a.csv", b"1")
    partner.write("sub/done/b.csv", b"2").parent.chmod(0o777)
    for _ in range(3):
        await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed", "sub/done/b.csv": "completed"}
    assert (partner.folder / "done" / "a.csv").read_bytes() == b"1"
    assert (partner.folder / "done" / "sub" / "done" / "b.csv").read_bytes() == b"2"


@pytest.mark.parametrize("folder", [".", "done/..", "{root}/"])
async def test_files_cannot_be_moved_to_where_they_are(partner: Partner, folder: str) -> None:
    with pytest.raises(MoveFolderInvalid):
        partner.change(after_import="move", move_to=folder.format(root=partner.folder))


@pytest.mark.parametrize("alias", ["from where the login begins", "over a link"])
async def test_a_watched_folder_by_another_name_is_not_moved_into(
    engine: Engine, partner: Partner, alias: str
) -> None:
    link = partner.folder.with_name(partner.folder.name + "-link")
    link.symlink_to(partner.folder)
    # Logins begin at the root here.
    other = str(link) if alias == "over a link" else str(partner.folder).lstrip("/")
    partner.change(after_import="move", directory=other, move_to=str(partner.folder))
    partner.write("a.csv", b"1")
    with pytest.raises(MoveFolderInvalid):
        await discover(engine, partner.server_id)
    assert (partner.server["status"], partner.files) == ("error", [])
    assert "into the watched folder" in partner.server["problem"]
    # Below it by another name is fine, and not looked into.
    partner.change(move_to=f"{partner.folder}/done", max_depth=2)
    for _ in range(3):
        await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}
    assert (partner.folder / "done" / "a.csv").exists()


async def test_a_paused_server_is_not_cleaned_up_until_it_goes_on(
    engine: Engine, partner: Partner
) -> None:
    partner.change(after_import="delete")
    file = partner.write("a.csv", b"1")
    await discover(engine, partner.server_id)
    (ids,) = await dispatch(engine, partner.server_id)
    assert await transfer(engine, ids) == ids
    partner.run(operations.pause_server, partner.server_id)
    await notify(engine, ids)
    assert await clean_up(engine) == 0
    assert (partner.statuses, file.exists()) == ({"a.csv": "completed"}, True)
    partner.run(operations.resume_server, partner.server_id)
    assert await clean_up(engine) == 1
    assert not file.exists()


async def test_a_file_that_cannot_be_deleted_is_imported_and_told_all_the_same(
    engine: Engine, partner: Partner
) -> None:
    partner.change(after_import="delete", max_depth=1)
    partner.write("sub/a.csv", b"1")
    os.chmod(partner.folder / "sub", 0o555)  # noqa: PTH101
    await run_once(engine, partner)
    row = partner.file("sub/a.csv")
    assert (row["status"], row["cleanup"]) == ("completed", "pending")
    assert "permission denied" in row["error_message"]
    assert len(partner.notices()) == 1
