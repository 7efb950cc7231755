"""Who gets in: logged out, wrong role, foreign origin, forged websocket, too many logins."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import psycopg
import pytest
import websockets
from websockets.sync.client import connect as connect_websocket

from tests.fixtures.console import PASSWORD, RunningConsole

PAGES = ("/", "/bus", "/bus/sagas", "/bus/dead", "/workers", "/settings", "/audit", "/accounts")
SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket&client_id=x"


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url) as client:
        yield client


def sign_in(client: httpx.Client, name: str, password: str = PASSWORD) -> httpx.Response:
    return client.post(
        "/console/login",
        data={"name": name, "password": password},
        headers={"origin": str(client.base_url).rstrip("/")},
    )


def strange(console: RunningConsole, number: int) -> httpx.Client:
    """Ask from an address of its own, so that the other tests of this worker are not locked out."""
    transport = httpx.HTTPTransport(local_address=f"127.0.0.{number}")
    return httpx.Client(base_url=console.url, transport=transport, timeout=60)


@pytest.mark.parametrize("path", PAGES)
def test_whoever_is_logged_out_is_sent_to_the_login(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/console{path}", headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/login?next=/console/")
    assert client.get(f"/console{path}").status_code == 401


def test_scripts_and_sockets_are_closed_to_whoever_is_logged_out(
    client: httpx.Client, console: RunningConsole
) -> None:
    polling = "/console/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    assert client.get(polling).status_code == 401
    with (
        pytest.raises(websockets.InvalidStatus) as refused,
        connect_websocket(console.url.replace("http", "ws") + SOCKET, origin=console.url),
    ):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("origin", "is_let_in"), [("own", True), ("http://evil.example", False), (None, False)]
)
def test_a_websocket_with_the_session_of_another_page_is_refused(
    client: httpx.Client, console: RunningConsole, origin: str | None, is_let_in: bool
) -> None:
    sign_in(client, "admin")
    cookie = f"postroad_session={client.cookies['postroad_session']}"
    wanted = (
        contextlib.nullcontext()
        if is_let_in
        else pytest.raises(websockets.InvalidStatus, match="HTTP 403")
    )
    with (
        wanted,
        connect_websocket(
            console.url.replace("http", "ws") + SOCKET,
            origin=console.url if origin == "own" else origin,
            additional_headers={"cookie": cookie},
        ) as socket,
    ):
        assert str(socket.recv()).startswith("0{")


@pytest.mark.parametrize(
    ("paths", "parameters"),
    [
        (
            ("/audit", "/bus/sagas", "/exchange", "/coordination", "/intake/files", "/bus"),
            ("after=--5", "after=9" * 30, "sort=x", "state=x", "search=%00", "after=Wzk5XQ"),
        ),
        (
            ("/bus/queues/x/messages", "/bus/dead", "/workers", "/alerts"),
            ("place=--5", "place=" + "9" * 40, "state=%00", "sort=x-99&order=%27", "consumer=%00"),
        ),
        (
            (
                "/bus/sagas/%s", "/intake/files/%s", "/exchange/messages/%s", "/bus/messages/%s",
                "/coordination/events/%s", "/exchange/processes/%s", "/bus/queues/%s",
                "/bus/queues/%s/messages", "/intake/servers/%s",
            ),
            ("--5", "9" * 40, "%00", "x", "%D9%A3", "x.y.z", "%27%3B", str(2**63 - 1)),
        ),
        (
            ("/find",),
            (
                "q=%00", "q=a%00b", "q=" + "9" * 9_000, "q=%ED%A0%80", "q=%27%29%3B+drop", "q=%25",
                "q=%7B1,2%7D", "q=x.99999999999999999999@y", "q=00-zz-00", "q=%3Cscript%3E", "q=",
                "q=..%2F..%2Fetc", f"q={2**63}", "q=-1",
            ),
        ),
    ],
    ids=["lists", "queues", "single", "find"],
)  # fmt: skip
def test_an_address_written_by_hand_is_refused_in_words(
    client: httpx.Client, paths: tuple[str, ...], parameters: tuple[str, ...]
) -> None:
    sign_in(client, "admin")
    broken = []
    for path, given in itertools.product(paths, parameters):
        asked = path.replace("%s", given) if "%s" in path else f"{path}?{given}"
        status = client.get(f"/console{asked}").status_code
        if status not in (200, 400, 404):
            broken.append((asked, status))
    assert broken == []
    assert client.get("/console/audit?after=--5").status_code == 400


@pytest.mark.parametrize("path", ["/settings", "/accounts", "/audit"])
@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_pages_of_admins_are_closed_to_others(client: httpx.Client, role: str, path: str) -> None:
    sign_in(client, role)
    assert client.get(f"/console{path}").status_code == 403
    assert client.get("/console/bus").status_code == 200


def test_a_post_from_another_site_changes_nothing(client: httpx.Client) -> None:
    sign_in(client, "viewer")
    for headers in ({"origin": "http://evil.example"}, {"referer": "http://evil.example/a"}, {}):
        assert client.post("/console/logout", headers=headers).status_code == 403
    assert client.get("/console/bus").status_code == 200
    own = {"origin": str(client.base_url).rstrip("/")}
    assert client.post("/console/logout", headers=own).status_code == 303
    assert client.get("/console/bus").status_code == 401


def test_a_foreign_name_for_our_address_is_refused(client: httpx.Client) -> None:
    assert client.get("/console/login", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("referer", ["http://[", "http://[::1"])
def test_a_referer_that_cannot_be_parsed_is_ignored(client: httpx.Client, referer: str) -> None:
    answer = client.get("/console/language/ru", headers={"referer": referer})
    assert answer.headers["location"] == "/console/"
    assert client.get("/console/login?next=//[").status_code == 200


def test_the_cookie_is_kept_from_scripts_and_other_sites(client: httpx.Client) -> None:
    cookie = sign_in(client, "viewer").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/console" in cookie
    answer = client.get("/console/login")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script" not in policy


def test_the_login_leads_nowhere_else(client: httpx.Client) -> None:
    for wanted in ("https://evil.example/", "//evil.example", "/console/\\evil", "javascript:1"):
        answer = client.post(
            "/console/login",
            data={"name": "viewer", "password": PASSWORD, "next": wanted},
            headers={"origin": str(client.base_url).rstrip("/")},
        )
        assert answer.headers["location"] == "/console/"


def test_failed_logins_are_counted_and_the_right_password_does_not_help_then(
    client: httpx.Client, console: RunningConsole
) -> None:
    with strange(console, 9) as stranger:
        answers = [sign_in(stranger, "admin", "wrong").status_code for _ in range(10)]
        assert answers == [401] * 10
        assert sign_in(stranger, "admin").status_code == 429
    assert sign_in(client, "admin").status_code == 303


def test_who_has_one_account_gets_no_more_attempts_at_another(console: RunningConsole) -> None:
    with strange(console, 10) as stranger:
        for _ in range(9):
            assert sign_in(stranger, "admin", "wrong").status_code == 401
        assert sign_in(stranger, "viewer").status_code == 303
        assert sign_in(stranger, "admin", "wrong").status_code == 401
        assert sign_in(stranger, "admin", "wrong").status_code == 429


def test_those_who_try_many_at_once_are_counted_before_passwords_are_compared(
    console: RunningConsole,
) -> None:
    with strange(console, 11) as stranger, ThreadPoolExecutor(30) as threads:
        asked = [threads.submit(sign_in, stranger, "admin", f"wrong{n}") for n in range(30)]
        answers = [one.result().status_code for one in asked]
    assert sorted(answers) == [401] * 10 + [429] * 20
    # The audit tells each comparison, and the flood after them once.
    with psycopg.connect(console.dsn) as connection:
        told = connection.execute(
            "select count(*) from console.audit where address = '127.0.0.11'"
        ).fetchone()
    assert told == (11,)


def test_what_a_request_says_of_its_origin_is_not_believed(console: RunningConsole) -> None:
    with strange(console, 12) as stranger:
        answers = []
        for number in range(11):
            stranger.headers["x-forwarded-for"] = f"203.0.113.{number}"
            answers.append(sign_in(stranger, "admin", "wrong").status_code)
    assert answers == [401] * 10 + [429]


@pytest.mark.parametrize("name", ["ad\0min", "\0", "x" * 201])
def test_a_name_that_cannot_be_one_is_refused_in_words(console: RunningConsole, name: str) -> None:
    with strange(console, 13) as stranger:
        assert sign_in(stranger, name).status_code in (401, 422)


def test_a_new_password_ends_the_sessions(client: httpx.Client, console: RunningConsole) -> None:
    with psycopg.connect(console.dsn) as connection:
        connection.execute("select console.put_account('leaver', 'operator', null)")
        connection.execute(
            "insert into console.session (token_hash, account, address, expires_at)"
            " values (encode(sha256('token'), 'hex'), 'leaver', '', now() + interval '1 hour')"
        )
    client.cookies.set("postroad_session", "token")
    assert client.get("/console/bus").status_code == 200
    with psycopg.connect(console.dsn) as connection:
        connection.execute("select console.put_account('leaver', 'viewer', null)")
    # A session is believed for two seconds by its cache, so the database is asked for the truth.
    with psycopg.connect(console.dsn) as connection:
        left = connection.execute("select from console.session where account = 'leaver'").fetchall()
    assert left == []


def test_every_login_and_refusal_is_in_the_audit(
    client: httpx.Client, console: RunningConsole
) -> None:
    sign_in(client, "viewer")
    with psycopg.connect(console.dsn) as connection:
        found = connection.execute(
            "select account, action, outcome from console.audit where account = 'viewer'"
        ).fetchall()
    assert ("viewer", "sign_in", "done") in found


def test_the_password_is_not_kept(console: RunningConsole) -> None:
    with psycopg.connect(console.dsn) as connection:
        hashes = connection.execute("select password_hash from console.account").fetchall()
    told = [hashed for (hashed,) in hashes if hashed]
    assert all(re.match(r"^\$argon2id\$", hashed) for hashed in told)
    assert PASSWORD not in json.dumps(told)


def test_health_metrics_and_docs_are_open(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").text == "ready\n"
    assert "postroad_info" in client.get("/metrics").text
    forwarded = client.get("/metrics", headers={"X-Forwarded-For": "10.0.0.1"})
    assert (forwarded.status_code, forwarded.json()["code"]) == (401, "web_token_missing")
    assert client.get("/docs").status_code == 200
    assert client.get("/").headers["location"] == "/console/"
