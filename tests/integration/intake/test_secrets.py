from __future__ import annotations

import io
import subprocess
from pathlib import Path

import httpx
import psycopg
import pytest

from postroad import logs
from postroad.intake import Credentials, operations, probe
from postroad.intake.api import create_api
from postroad.intake.celery_worker import create_app
from postroad.intake.context import IntakeContext
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.errors import SourceError
from postroad.intake.resources import SERVERS
from postroad.postgres import run_blocking
from postroad.settings.intake import IntakeSettings
from postroad.testing import TestServer
from postroad.vault import SealBroken, Vault, new_key
from postroad.web.server import WebServer
from tests.fixtures.sshd import PASSPHRASE, PasswordSftp, SshServer
from tests.integration.intake.partner import Partner, run_once

TOKEN = "planted-token-4417"


async def test_planted_secrets_are_found_nowhere(
    engine: Engine,
    database: str,
    vault: Vault,
    intake_settings: IntakeSettings,
    sshd: SshServer,
    password_sftp: PasswordSftp,
    tmp_path: Path,
    server_of_run: TestServer,
) -> None:
    said = io.StringIO()
    logs.set_up(level="debug", shape="json", stream=said)
    answers = []
    context = IntakeContext(database, intake_settings, vault, tmp_path / "data")
    key = sshd.key("lockedkey")
    async with (
        WebServer(create_api(context, TOKEN)) as server,
        httpx.AsyncClient(
            base_url=f"{server.url}/intake/v1", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as web,
    ):
        for body in (
            {"port": password_sftp.port, "username": password_sftp.username, "directory": ".",
             "credentials": {"password": password_sftp.password}},
            {"port": password_sftp.port, "username": password_sftp.username, "directory": "/",
             "credentials": {"password": password_sftp.password + "x"}},
            {"port": sshd.port, "username": sshd.username, "directory": str(sshd.new_folder()),
             "credentials": {"private_key": key, "passphrase": PASSPHRASE}},
        ):  # fmt: skip
            made = await web.post(
                "/servers", json={"host": "127.0.0.1", "looks": 1, "trusts_first_key": True, **body}
            )
            answers.append(made.text)
            place = f"/servers/{made.json()['id']}"
            answers.append((await web.post(f"{place}/test")).text)
            answers.append((await web.patch(place, json={"credentials": body["credentials"]})).text)
            answers.append((await web.get("/servers")).text)
    (password_sftp.files / "a.csv").write_bytes(b"1")
    with psycopg.connect(database, autocommit=True) as connection:
        for row in run_blocking(database, SERVERS.all):
            partner = Partner(password_sftp.files, connection, vault, row["id"])
            try:
                await run_once(engine, partner)
            except SourceError as failure:
                answers.append(repr(failure) + str(failure.__cause__))
        app = create_app(context)
        payloads = []
        for name, task in app.tasks.items():
            if name.startswith("postroad.intake.tasks.") and "discover_files" in name:
                task.apply_async(args=[1])
        payloads.append(
            subprocess.run(  # noqa: ASYNC221 - nothing else runs meanwhile
                [_pg_dump(server_of_run), "--inserts", "-d", database],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        app.close()
    everything = "\n".join([said.getvalue(), *answers, *payloads])
    assert "discover_files_on_server" in everything, "the task's payload is in the dump"
    secret_line = key.splitlines()[2]
    for secret in (password_sftp.password, PASSPHRASE, secret_line, TOKEN):
        assert secret not in everything


def _pg_dump(server: TestServer) -> str:
    return str(server.embedded.cluster.binaries.program("pg_dump"))


async def test_rotating_the_key_seals_anew_and_the_old_key_can_go(
    engine: Engine, partner: Partner, vault: Vault, sshd: SshServer, intake_settings: IntakeSettings
) -> None:
    before = partner.server["credentials"]
    fresh = new_key()
    keys = [fresh, *_keys(vault)]
    assert partner.run(operations.rotate_credentials, Vault(keys)) == 1
    after = partner.server["credentials"]
    assert after != before
    with pytest.raises(SealBroken):
        Credentials.open(vault, after)
    engine.vault = Vault([fresh])
    assert (await probe.try_server(engine, partner.server_id))["works"]


async def test_a_lost_key_is_told_as_what_it_is(engine: Engine, partner: Partner) -> None:
    engine.vault = Vault([new_key()])
    with pytest.raises(SourceError) as refused:
        await discover(engine, partner.server_id)
    assert "credentials" in refused.value.message
    assert partner.server["status"] == "login_refused"


def _keys(vault: Vault) -> list[str]:
    import base64

    return [
        base64.urlsafe_b64encode(one._signing_key + one._encryption_key).decode()
        for one in vault._fernet._fernets
    ]


def test_credentials_show_nothing() -> None:
    shown = repr(Credentials(password="planted-password-7391"))
    assert "planted" not in shown
