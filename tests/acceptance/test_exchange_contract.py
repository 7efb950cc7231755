"""The exchange's contract, call by call, over HTTP against a server in a process of its own.

`as_users_run_it` is `postroad exchange serve`; the other tests fork the same server from a process
that has everything imported, which saves its start.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroad.cli.components import SCHEMAS
from postroad.exchange import operations
from postroad.postgres import run_blocking
from postroad.testing import TestServer, wait_until
from tests.fixtures.contract import Contract
from tools.crash_table.world import ForkServer, free_port

pytestmark = pytest.mark.timeout(120)

SETTINGS = {
    "POSTROAD_EXCHANGE__STARTED_TIMEOUT": "2s",
    "POSTROAD_EXCHANGE__READY_TIMEOUT": "2s",
    "POSTROAD_EXCHANGE__SWEEP_INTERVAL": "200ms",
}


as_users_run_it = pytest.mark.parametrize("program", [True], indirect=True, ids=["program"])
on_every_version = pytest.mark.both_versions


def command(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "postroad", "--database-url", dsn, "exchange", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@dataclass
class ExchangeProgram:
    """One server, its root folder, and its clients."""

    dsn: str
    root: Path
    settings: dict[str, str] = field(default_factory=dict)
    url: str = ""
    fork_server: ForkServer | None = None
    process: subprocess.Popen[str] | None = None
    pid: int | None = None
    clients: dict[str, httpx2.Client] = field(default_factory=dict)
    contract: Contract | None = None

    def start(self) -> None:
        if self.fork_server is not None:
            self._fork(self.fork_server)
            return
        self.process = subprocess.Popen(
            [
                *[sys.executable, "-m", "postroad", "--database-url", self.dsn],
                *["exchange", "serve", "--root", str(self.root), "--host", "127.0.0.1"],
                *["--port", "0", "--json"],
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.settings},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        self.url = json.loads(line)["url"]

    def _fork(self, fork_server: ForkServer) -> None:
        port, ready = free_port(), self.root.with_name("ready")
        ready.unlink(missing_ok=True)
        prefix = "POSTROAD_EXCHANGE__"
        self.pid = fork_server.spawn(
            dsn=self.dsn,
            root=str(self.root),
            port=port,
            settings={
                key.removeprefix(prefix).lower(): self.settings[key] for key in self.settings
            },
            ready=str(ready),
            is_held=False,
        )
        wait_until(ready.is_symlink, what="the server serves", timeout_seconds=60)
        self.url = f"http://127.0.0.1:{port}"

    def stop(self, *, kill: bool = False) -> None:
        for client in self.clients.values():
            client.close()
        self.clients.clear()
        if self.process is not None:
            self.process.kill() if kill else self.process.terminate()
            self.process.communicate(timeout=30)
            self.process = None
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{self.pid}").exists(), what="the server gone")
            self.pid = None

    def token(self, name: str, **rights: Any) -> str:
        rights.setdefault("databases", None)
        return str(run_blocking(self.dsn, operations.add_client, name, **rights).token)

    def client(self, name: str, *, token: str | None = None, **rights: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token or self.token(name, **rights)}"}
        client = httpx2.Client(
            base_url=f"{self.url}/exchange/v1",
            headers=headers,
            timeout=30,
            event_hooks={"response": [self._compare]},
        )
        self.clients[f"{name}-{len(self.clients)}"] = client
        return client

    def _compare(self, response: httpx2.Response) -> None:
        """Every JSON answer is the one that OpenAPI describes."""
        kind = response.headers.get("content-type", "")
        path = response.request.url.path
        if not kind.startswith(("application/json", "application/problem+json")):
            return
        if path.endswith(("/content", "/openapi.json")) or "/files/" in path:
            return
        if self.contract is None:
            self.contract = Contract(httpx2.get(f"{self.url}/exchange/v1/openapi.json").json())
        response.read()
        self.contract.check(response.request.method, path, response.status_code, response.json())

    def files(self, database: str, folder: str) -> list[str]:
        path = self.root / database / folder
        return sorted(one.name for one in path.iterdir()) if path.is_dir() else []


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def program(
    request: pytest.FixtureRequest, database: str, tmp_path: Path, fork_server: ForkServer
) -> Iterator[ExchangeProgram]:
    is_program = getattr(request, "param", False)
    program = ExchangeProgram(
        database, tmp_path / "root", SETTINGS, fork_server=None if is_program else fork_server
    )
    program.start()
    try:
        yield program
    finally:
        program.stop()


def send(sender: httpx2.Client, name: str, **more: Any) -> httpx2.Response:
    body = {"id": name, "database": "sales", "body": {"n": name}, **more}
    return sender.post("/messages", json=body)


def start(erp: httpx2.Client, attempt: str, **more: Any) -> dict[str, Any]:
    answer = erp.post("/processes", json={"database": "sales", "attempt": attempt, **more})
    assert answer.status_code in (200, 201), answer.text
    return dict(answer.json())


def is_problem(answer: httpx2.Response, status: int) -> bool:
    kind = answer.headers["content-type"].split(";")[0]
    return answer.status_code == status and kind == "application/problem+json"


@on_every_version
@as_users_run_it
def test_the_whole_way_of_a_message_and_its_reply(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    assert send(mobile, "m1").status_code == 201
    assert len(program.files("sales", "Messages")) == 1
    assert "_m1_from_mobile-1_to_" in program.files("sales", "Messages")[0]

    begun = start(erp, "a1")
    assert begun["status"] == "STARTED"
    process = begun["process"]
    (file,) = process["files"]
    assert (file["id"], file["sender"]) == ("m1", "mobile-1")
    assert file["body"] == {"n": "m1"}
    assert (process["state"], process["database"]) == ("STARTED", "sales")
    assert process["recipient"] == "erp-1"
    assert process["received"] == []
    assert {"started_at", "expires_at", "id"} <= set(process)
    assert {"name", "sequence", "size", "sha256"} <= set(file)

    at = f"/processes/{process['id']}"
    assert erp.put(f"{at}/files", json={"files": [file["name"]]}).json()["status"] == "OK"
    reply = {"name": "r1", "recipient": "mobile-1", "reply_to": "m1", "body": {"ok": True}}
    prepared = {"replies": [reply], "results": {file["name"]: {"status": "PROCESSED"}}}
    assert erp.post(f"{at}/prepare", json=prepared).json()["status"] == "OK"
    assert erp.post(f"{at}/prepare", json=prepared).json()["status"] == "OK"
    assert len(program.files("sales", "Prepared")) == 1
    assert mobile.get("/messages").json()["items"] == []
    assert erp.post(f"{at}/commit").json()["status"] == "OK"
    assert erp.post(f"{at}/commit").json()["status"] == "OK"
    assert program.files("sales", "Prepared") == []
    assert len(program.files("sales", "Log")) == 1

    got = mobile.get("/messages").json()
    (message,) = got["items"]
    assert message["body"] == {"ok": True}
    ack = mobile.delete(f"/messages/{message['id']}")
    assert ack.status_code == 200
    assert mobile.delete(f"/messages/{message['id']}").status_code == 200
    assert program.files("sales", "Messages") == []
    assert len(program.files("sales", "Log")) == 2
    shown = program.client("root-1", is_admin=True).get(at).json()
    assert [one["id"] for one in shown["files"]] == ["m1"]


def test_the_same_message_again_is_answered_the_same_and_other_content_is_refused(
    program: ExchangeProgram,
) -> None:
    mobile = program.client("mobile-1")
    first = send(mobile, "m1")
    again = send(mobile, "m1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert is_problem(send(mobile, "m1", body={"n": "other"}), 409)
    assert send(program.client("mobile-2"), "m1", body={"n": "other"}).status_code == 201


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", "x" * 65, ".hidden", "-dash", "a b", "a\u0000b", "é", "a\nb"]
)
def test_an_id_that_is_no_safe_name_is_refused(program: ExchangeProgram, name: str) -> None:
    mobile = program.client("mobile-1")
    assert is_problem(send(mobile, name), 422)
    assert is_problem(send(mobile, "m1", database=name), 422)
    if name:
        assert is_problem(send(mobile, "m1", recipient=name), 422)
    assert not list(program.root.glob("*/Messages/*"))


def test_databases_differ_by_more_than_case(program: ExchangeProgram) -> None:
    mobile = program.client("mobile-1")
    assert send(mobile, "m1", database="Sales").status_code == 201
    refused = send(mobile, "m2", database="sales")
    assert refused.status_code in (409, 422)
    assert refused.headers["content-type"].startswith("application/problem+json")


def test_one_process_a_database_and_the_same_attempt_is_the_same_process(
    program: ExchangeProgram,
) -> None:
    mobile, one, two = program.client("mobile-1"), program.client("erp-1"), program.client("erp-2")
    assert start(one, "a0", database="sales")["status"] == "IDLE"
    send(mobile, "m1")
    begun = start(one, "a1")
    again = start(one, "a1")
    assert again["process"]["id"] == begun["process"]["id"]
    busy = start(two, "b1")
    assert busy["status"] == "BUSY"
    assert busy["holder"] == "erp-1"
    assert {"since", "retry_after"} <= set(busy)
    assert is_problem(two.post(f"/processes/{begun['process']['id']}/commit"), 403)


def test_an_aborted_or_failed_process_gives_its_files_back(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    send(mobile, "m1")
    first = start(erp, "a1")["process"]["id"]
    assert erp.post(f"/processes/{first}/abort", json={"error": "no"}).json()["status"] == "OK"
    assert erp.post(f"/processes/{first}/abort", json={"error": "no"}).json()["status"] == "OK"
    assert is_problem(erp.post(f"/processes/{first}/commit"), 409)
    ended = start(erp, "a1")
    assert ended["process"]["id"] == first
    assert ended["process"]["state"] != "STARTED"
    second = start(erp, "a2")["process"]["id"]
    assert erp.post(f"/processes/{second}/fail", json={"error": "no"}).json()["status"] == "OK"
    assert start(erp, "a3")["status"] in ("STARTED", "IDLE")


def test_an_unknown_process_is_cancelled_or_not_found(program: ExchangeProgram) -> None:
    erp = program.client("erp-1")
    at = "/processes/no-such-process"
    assert erp.put(f"{at}/files", json={"files": []}).json()["status"] == "CANCELLED"
    prepared = erp.post(f"{at}/prepare", json={"replies": [], "results": {}})
    assert prepared.json()["status"] == "CANCELLED"
    for call in ("commit", "renew"):
        assert is_problem(erp.post(f"{at}/{call}"), 404)
    for call in ("abort", "fail"):
        assert is_problem(erp.post(f"{at}/{call}", json={"error": "x"}), 404)
    assert is_problem(erp.post(f"{at}/resolve", json={"outcome": "COMMITTED"}), 404)


def test_a_started_process_that_says_nothing_is_cancelled(program: ExchangeProgram) -> None:
    mobile, erp, other = (
        program.client("mobile-1"),
        program.client("erp-1"),
        program.client("erp-2"),
    )
    send(mobile, "m1")
    process = start(erp, "a1")["process"]
    wait_until(lambda: start(other, "b1")["status"] == "STARTED", what="files free again")
    late = erp.post(f"/processes/{process['id']}/prepare", json={"replies": [], "results": {}})
    assert late.json()["status"] == "CANCELLED"


def test_in_doubt_asks_to_be_settled_and_a_late_commit_settles_it(program: ExchangeProgram) -> None:
    added = command(program.dsn, "databases", "add", "sales", "--resolution", "marker")
    assert added.returncode == 0, added.stderr
    mobile, erp, other = (
        program.client("mobile-1"),
        program.client("erp-1"),
        program.client("erp-2"),
    )
    send(mobile, "m1")
    process = start(erp, "a1")["process"]
    at = f"/processes/{process['id']}"
    erp.post(f"{at}/prepare", json={"replies": [], "results": {}})
    wait_until(lambda: program.files("sales", "Unknown") != [], what="files in Unknown")
    assert start(other, "b1") == {"status": "RESOLVE", "processes": [process["id"]]}
    assert erp.post(f"{at}/commit").json()["status"] == "OK"
    assert program.files("sales", "Unknown") == []
    assert len(program.files("sales", "Log")) == 1
    contradiction = other.post(f"{at}/resolve", json={"outcome": "ABORTED"})
    assert is_problem(contradiction, 409)
    assert start(other, "b2")["status"] == "IDLE"


@on_every_version
def test_the_question_rides_on_the_next_start(program: ExchangeProgram) -> None:
    run_blocking(program.dsn, operations.add_database, "sales", resolution="marker")
    mobile, erp, other = (
        program.client("mobile-1"),
        program.client("erp-1"),
        program.client("erp-2"),
    )
    send(mobile, "m1")
    process = start(erp, "a1")["process"]
    erp.post(f"/processes/{process['id']}/prepare", json={"replies": [], "results": {}})
    wait_until(lambda: start(other, "b1")["status"] == "RESOLVE", what="the question")
    begun = start(other, "b2", resolved={process["id"]: "ABORTED"})
    assert begun["status"] == "STARTED"
    assert [file["id"] for file in begun["process"]["files"]] == ["m1"]


@as_users_run_it
def test_a_killed_server_goes_on_where_it_was(program: ExchangeProgram) -> None:
    tokens = {name: program.token(name) for name in ("mobile-1", "erp-1")}
    mobile = program.client("mobile-1", token=tokens["mobile-1"])
    erp = program.client("erp-1", token=tokens["erp-1"])
    send(mobile, "m1")
    process = start(erp, "a1")["process"]
    program.stop(kill=True)
    program.start()
    erp = program.client("erp-1", token=tokens["erp-1"])
    assert start(erp, "a1")["process"]["id"] == process["id"]
    at = f"/processes/{process['id']}"
    assert erp.post(f"{at}/prepare", json={"replies": [], "results": {}}).json()["status"] == "OK"
    assert erp.post(f"{at}/commit").json()["status"] == "OK"
    assert len(program.files("sales", "Log")) == 1


def test_deferred_and_incorrect_files_have_their_ways(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    for name in ("m1", "m2", "m3"):
        send(mobile, name)
    process = start(erp, "a1")["process"]
    names = {file["id"]: file["name"] for file in process["files"]}
    results = {
        names["m2"]: {"status": "DEFERRED", "error": "not yet"},
        names["m3"]: {"status": "INCORRECT", "error": "no such item"},
    }
    at = f"/processes/{process['id']}"
    erp.post(f"{at}/prepare", json={"replies": [], "results": results})
    assert erp.post(f"{at}/commit").json()["status"] == "OK"
    assert [name for name in program.files("sales", "Log") if "_m1_" in name]
    assert [name for name in program.files("sales", "Messages") if "_m2_" in name]
    assert [name for name in program.files("sales", "Error") if "_m3_" in name]


def test_large_content_goes_by_link_and_upload(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    content = os.urandom(1024 * 1024)
    encoded = base64.b64encode(content).decode()
    sent = mobile.post(
        "/messages",
        json={
            "id": "big",
            "database": "sales",
            "content_base64": encoded,
            "media_type": "application/zip",
        },
    )
    assert sent.status_code == 201
    process = start(erp, "a1")["process"]
    (file,) = process["files"]
    assert "body" not in file or file["body"] is None
    got = erp.get(httpx2.URL(erp.base_url).join(file["href"]))
    assert hashlib.sha256(got.content).hexdigest() == file["sha256"]
    assert got.content == content
    at = f"/processes/{process['id']}"
    upload = erp.put(f"{at}/replies/answer", params={"recipient": "mobile-1"}, content=content)
    assert upload.status_code in (200, 201), upload.text
    digest = hashlib.sha256(content).hexdigest()
    reply = {"name": "answer", "recipient": "mobile-1", "sha256": digest}
    assert (
        erp.post(f"{at}/prepare", json={"replies": [reply], "results": {}}).json()["status"] == "OK"
    )
    assert erp.post(f"{at}/commit").json()["status"] == "OK"


def test_a_client_is_added_by_the_command_and_its_token_is_shown_once(
    program: ExchangeProgram,
) -> None:
    made = command(program.dsn, "clients", "add", "erp-9", "--json")
    assert made.returncode == 0, made.stderr
    answer = json.loads(made.stdout)
    assert answer["id"] == "erp-9"
    assert program.client("erp-9", token=answer["token"]).get("/messages").status_code == 200
    again = command(program.dsn, "clients", "add", "erp-9", "--json")
    assert again.returncode != 0
    assert answer["token"] not in command(program.dsn, "clients", "list", "--json").stdout


def test_rights_and_tokens(program: ExchangeProgram) -> None:
    bare = httpx2.Client(base_url=f"{program.url}/exchange/v1", timeout=30)
    with contextlib.closing(bare):
        assert is_problem(bare.get("/messages"), 401)
        assert is_problem(bare.get("/messages", headers={"Authorization": "Bearer x"}), 401)
    limited = program.client("limited", databases=("other",))
    assert is_problem(send(limited, "m1"), 403)
    assert send(limited, "m1", database="other").status_code == 201
    plain, admin = program.client("plain"), program.client("root-1", is_admin=True)
    assert is_problem(plain.get("/processes"), 403)
    for path in ("/processes", "/databases", "/clients"):
        assert admin.get(path).status_code == 200
    assert "token" not in json.dumps(admin.get("/clients").json()).lower()


def test_a_body_above_the_limit_is_413(program: ExchangeProgram) -> None:
    mobile = program.client("mobile-1")
    assert is_problem(send(mobile, "m1", body="x" * (21 * 1024 * 1024)), 413)
    assert send(mobile, "m1").status_code == 201


def test_order_decides_and_a_group_is_one_file(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    send(mobile, "late", order=20)
    send(mobile, "early", order=10)
    group = {"id": "pair", "database": "sales", "order": 30}
    parts = [{"id": "p1", "body": 1}, {"id": "p2", "body": 2}]
    assert mobile.post("/messages", json={**group, "messages": parts}).status_code == 201
    files = start(erp, "a1")["process"]["files"]
    assert [file["id"] for file in files] == ["early", "late", "pair"]


def test_a_restored_database_is_noticed(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    send(mobile, "m1")
    process = start(erp, "a1", marker_seq=7)["process"]
    at = f"/processes/{process['id']}"
    erp.post(f"{at}/prepare", json={"replies": [], "results": {}})
    erp.post(f"{at}/commit")
    send(mobile, "m2")
    restored = start(erp, "a2", marker_seq=3)
    assert restored["status"] == "RESTORED"
    assert {"last", "got"} <= set(restored)


@as_users_run_it
def test_a_server_of_another_database_on_the_same_root_refuses(
    program: ExchangeProgram, server: TestServer
) -> None:
    with server.clone(*SCHEMAS) as other:
        second = command(other, "serve", "--root", str(program.root), "--port", "0")
    assert second.returncode != 0
    assert "root" in second.stderr.lower() or "another" in second.stderr.lower()


def test_an_edited_file_is_found_and_set_aside(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    send(mobile, "m1")
    send(mobile, "m2")
    (victim,) = (program.root / "sales" / "Messages").glob("*_m1_*")
    victim.write_text("edited")
    files = start(erp, "a1")["process"]["files"]
    assert [file["id"] for file in files] == ["m2"]
    checked = command(program.dsn, "check", "--json")
    assert checked.returncode in (0, 1, 4), checked.stderr


def test_release_of_a_ready_process_needs_an_outcome(program: ExchangeProgram) -> None:
    mobile, erp = program.client("mobile-1"), program.client("erp-1")
    admin = program.client("root-1", is_admin=True)
    send(mobile, "m1")
    process = start(erp, "a1")["process"]
    at = f"/processes/{process['id']}"
    erp.post(f"{at}/prepare", json={"replies": [], "results": {}})
    refused = admin.post(f"{at}/release", json={})
    assert refused.status_code in (409, 422)
    assert admin.post(f"{at}/release", json={"outcome": "ABORTED"}).status_code == 200
    assert [file["id"] for file in start(erp, "a2")["process"]["files"]] == ["m1"]


def test_openapi_describes_the_token_every_field_and_every_answer(program: ExchangeProgram) -> None:
    document = httpx2.get(f"{program.url}/exchange/v1/openapi.json").json()
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, described in document["paths"].items():
        for method, operation in described.items():
            place = f"{method} {path}"
            assert path.endswith("/health") or operation["security"], place
            answers = operation["responses"]
            assert all("content" in answer for answer in answers.values()), place
    started = document["components"]["schemas"]["ProcessHanded"]["properties"]
    assert {"files", "received", "marker_seq"} <= started.keys()
    assert "description" in started["marker_seq"]


def test_a_byte_order_mark_is_ignored(program: ExchangeProgram) -> None:
    phone = program.client("phone", databases=None)
    text = json.dumps({"id": "m-1", "database": "sales", "body": {"item": "nails"}})
    answer = phone.post(
        "/messages",
        content=b"\xef\xbb\xbf" + text.encode(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 201, answer.text
