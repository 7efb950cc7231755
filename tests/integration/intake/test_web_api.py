from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from postroad.intake.api import create_api
from postroad.intake.context import IntakeContext
from postroad.intake.engine import Engine
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault
from postroad.web.server import WebServer
from tests.fixtures.sshd import SshServer
from tests.integration.intake.partner import Partner, run_once

TOKEN = "planted-token-4417"


@pytest.fixture
async def web(
    database: str, intake_settings: IntakeSettings, vault: Vault, tmp_path: Path
) -> AsyncIterator[httpx.AsyncClient]:
    context = IntakeContext(database, intake_settings, vault, tmp_path / "data")
    async with (
        WebServer(create_api(context, TOKEN)) as server,
        httpx.AsyncClient(
            base_url=f"{server.url}/intake/v1",
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=30,
        ) as client,
    ):
        yield client


def _body(sshd: SshServer, **more: Any) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": sshd.port,
        "username": sshd.username,
        "directory": str(sshd.new_folder()),
        "credentials": {"private_key": sshd.key()},
        **more,
    }


async def test_the_list_of_servers_has_pages(web: httpx.AsyncClient, sshd: SshServer) -> None:
    for name in ("acme", "bolt", "coil"):
        body = _body(sshd, name=name, scan_interval="PT5M")
        assert (await web.post("/servers", json=body)).is_success
    first = await web.get("/servers", params={"limit": 2, "sort": "name", "search": "127.0.0.1"})
    assert [one["name"] for one in first.json()] == ["acme", "bolt"]
    alone = await web.get(f"/servers/{first.json()[0]['id']}")
    assert (first.json()[0], alone.json()["scan_interval"]) == (alone.json(), "PT5M")
    following = first.links["next"]["url"]
    assert following.startswith("/intake/v1/servers?")
    second = await web.get(following.removeprefix("/intake/v1"))
    assert [one["name"] for one in second.json()] == ["coil"]
    assert "next" not in second.links


async def test_nobody_gets_in_without_the_token(web: httpx.AsyncClient) -> None:
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):
        answer = await web.get("/servers", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_server_is_created_read_changed_tested_paused_and_deleted(
    web: httpx.AsyncClient, sshd: SshServer
) -> None:
    made = await web.post("/servers", json=_body(sshd, name="acme", after_import="delete"))
    assert made.status_code == 201, made.text
    server = made.json()
    assert (server["name"], server["status"], server["looks"]) == ("acme", "new", 2)
    assert "credentials" not in server
    place = f"/servers/{server['id']}"
    assert (await web.get(place)).json() == server
    assert [one["name"] for one in (await web.get("/servers")).json()] == ["acme"]
    changed = await web.patch(place, json={"looks": 1, "scan_interval": "PT5M"})
    assert (changed.json()["looks"], changed.json()["scan_interval"]) == (1, "PT5M")
    assert changed.json()["after_import"] == "delete"
    tested = (await web.post(f"{place}/test")).json()
    assert (tested["works"], tested["host_key"]) == (True, sshd.host_key)
    assert (await web.post(f"{place}/pause")).json()["is_active"] is False
    assert (await web.post(f"{place}/resume")).json()["is_active"] is True
    assert (await web.delete(place)).status_code == 204
    gone = await web.get(place)
    assert (gone.status_code, gone.json()["code"]) == (404, "IN001")


async def test_a_folder_can_be_browsed(web: httpx.AsyncClient, sshd: SshServer) -> None:
    body = _body(sshd)
    folder = Path(body["directory"])
    (folder / "sub").mkdir()
    (folder / "a.csv").write_bytes(b"123")
    (folder / "sub" / "b.csv").write_bytes(b"1")
    server = (await web.post("/servers", json=body)).json()
    place = f"/servers/{server['id']}/browse"
    found = (await web.get(place)).json()
    assert [(one["name"], one["kind"], one["size"]) for one in found if one["kind"] == "file"] == [
        ("a.csv", "file", 3)
    ]
    inner = (await web.get(place, params={"path": f"{folder}/sub"})).json()
    assert [one["name"] for one in inner] == ["b.csv"]
    absent = await web.get(place, params={"path": f"{folder}/absent"})
    assert (absent.status_code, absent.json()["code"]) == (404, "intake_file_vanished")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"port": 0}, 422),
        ({"credentials": {}}, 422),
        ({"credentials": {"private_key": "planted-key-5512"}}, 422),
        ({"after_import": "burn"}, 422),
        ({"unknown": 1}, 422),
        ({"name": "a/b"}, 422),
        ({"host_key": "ssh-ed25519 no"}, 422),
    ],
)
async def test_what_makes_no_sense_is_refused_without_repeating_secrets(
    web: httpx.AsyncClient, sshd: SshServer, change: dict[str, Any], status: int
) -> None:
    answer = await web.post("/servers", json=_body(sshd, **change))
    assert answer.status_code == status, answer.text
    assert "planted" not in answer.text
    assert "PRIVATE KEY" not in answer.text


async def test_the_same_folder_twice_is_a_conflict(web: httpx.AsyncClient, sshd: SshServer) -> None:
    body = _body(sshd)
    assert (await web.post("/servers", json=body)).status_code == 201
    again = await web.post("/servers", json=body)
    assert (again.status_code, again.json()["code"]) == (409, "intake_server_exists")


async def test_two_folders_of_one_host_are_two_servers(
    web: httpx.AsyncClient, sshd: SshServer
) -> None:
    names = [(await web.post("/servers", json=_body(sshd))).json()["name"] for _ in range(2)]
    assert names == ["127.0.0.1", "127.0.0.1-2"]


async def test_files_are_filtered_paged_retried_skipped_and_reimported(
    web: httpx.AsyncClient, engine: Engine, partner: Partner
) -> None:
    for number in range(5):
        partner.write(f"{number}.csv", os.urandom(10))
    partner.write("secret.csv", b"1").chmod(0)
    await run_once(engine, partner)
    page = (await web.get("/files", params={"limit": 4})).json()
    assert len(page["items"]) == 4
    rest = (await web.get("/files", params={"limit": 4, "cursor": page["cursor"]})).json()
    assert rest["cursor"] is None
    ids = [one["id"] for one in page["items"] + rest["items"]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 6
    done = (await web.get("/files", params={"status": "completed"})).json()["items"]
    assert sorted(one["filename"] for one in done) == [f"{number}.csv" for number in range(5)]
    found = (await web.get("/files", params={"name": "SECRET"})).json()["items"]
    assert [one["error_message"] for one in found] == [
        "secret.csv may not be read: permission denied"
    ]
    secret = found[0]["id"]
    assert (await web.post(f"/files/{secret}/skip")).json()["status"] == "skipped"
    assert (await web.post("/files/retry", json={"ids": [secret]})).json() == [secret]
    again = (await web.post(f"/files/{done[0]['id']}/reimport")).json()
    assert again["status"] == "discovered"
    history = (await web.get(f"/files/{done[0]['id']}/history")).json()
    assert [one["status"] for one in history] == [
        "discovered",
        "uploaded_to_minio",
        "completed",
        "reimported",
    ]
    partner.notices()
    await run_once(engine, partner)
    assert [one["file_id"] for one in partner.notices()] == [done[0]["id"]]
    counts = (await web.get("/counts")).json()
    assert (counts["completed"], counts["failed"]) == (5, 0)
    assert (await web.get("/files/999999")).status_code == 404
    assert (await web.get("/files", params={"cursor": "nonsense"})).status_code == 422


async def test_the_progress_of_a_transfer_can_be_watched(
    web: httpx.AsyncClient, engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from postroad.intake.discovery import discover
    from postroad.intake.transfer import transfer
    from postroad.intake.work import dispatch

    partner.write("large.bin", os.urandom(20_000_000))
    await discover(engine, partner.server_id)
    seen: list[dict[str, Any]] = []
    complete = engine.store.complete

    async def look_first(*arguments: Any) -> None:
        seen.extend((await web.get("/transfers")).json())
        await complete(*arguments)

    monkeypatch.setattr(engine.store, "complete", look_first)
    (ids,) = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    assert [(one["filename"], one["bytes_done"], one["worker"]) for one in seen] == [
        ("large.bin", 20_000_000, "test worker")
    ]
