"""Lists and actions of the bus and the alerts over HTTP, with the rights of the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from postroad.alerts import raise_alert
from postroad.bus import Bus
from postroad.console import operations
from postroad.postgres import run_blocking
from tests.console.stage import look
from tests.fixtures.console import RunningConsole


@pytest.fixture
def calls(console: RunningConsole) -> Iterator[dict[str, httpx.Client]]:
    """Give a client for each role."""
    clients = {}
    for role in ("viewer", "operator"):
        token = run_blocking(console.dsn, operations.token, role)["token"]
        clients[role] = httpx.Client(
            base_url=console.url, timeout=60, headers={"Authorization": f"Bearer {token}"}
        )
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def bus(console: RunningConsole) -> Iterator[Bus]:
    with Bus(console.dsn) as bus:
        bus.create_queue("over_http", payload="jsonb")
        yield bus
        bus.drop_queue("over_http")


def done(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def test_dead_messages_are_listed_previewed_and_redriven(
    calls: dict[str, httpx.Client], bus: Bus, console: RunningConsole
) -> None:
    bus.post_many("over_http", [{"n": n} for n in range(3)])
    for held in bus.lease("over_http", amount=3):
        bus.nack(held, error="no such customer", park=True)
    viewer, operator = calls["viewer"], calls["operator"]
    listed = done(viewer.get("/bus/v1/dead-messages", params={"queue": "over_http", "limit": 2}))
    assert [one["error"] for one in listed["items"]] == ["no such customer"] * 2
    after = {"queue": "over_http", "cursor": listed["cursor"]}
    assert len(done(viewer.get("/bus/v1/dead-messages", params=after))["items"]) == 1
    where = {"queue": "over_http"}
    call = "/bus/v1/dead-messages/redrive/all"
    # A viewer may read, and nobody may without a token.
    assert done(viewer.post(call, params=where, json={}), 403)["code"] == "console_not_allowed"
    assert httpx.get(f"{console.url}/bus/v1/queues").status_code == 401
    dry = done(operator.post(call, params=where, json={"is_dry_run": True}))
    assert (dry["count"], dry["is_dry_run"]) == (3, True)
    assert look(console, "select count(*) from mbus.dead where queue = 'over_http'") == [(3,)]
    assert done(operator.post(call, params=where, json={}))["count"] == 3
    assert look(console, "select count(*) from mbus.dead where queue = 'over_http'") == [(0,)]
    audited = "select account, outcome from console.audit where action = 'bus.redrive'"
    # Nor may a viewer's attempt go unrecorded.
    expected = [("viewer", "refused"), ("operator", "done")]
    assert look(console, f"{audited} and detail ->> 'queue' = 'over_http' order by id") == expected


def test_a_queue_is_paused_and_an_alert_muted(
    calls: dict[str, httpx.Client], bus: Bus, console: RunningConsole
) -> None:
    operator = calls["operator"]
    given = {"queue": "over_http", "reason": "the shop moves"}
    assert done(operator.post("/bus/v1/consumer-figures/pause", json=given))["is_changed"]
    (row,) = done(operator.get("/bus/v1/consumers", params={"queue": "over_http"}))["items"]
    assert (row["paused_by"], row["pause_reason"]) == ("operator (HTTP)", "the shop moves")
    with psycopg.connect(console.dsn) as connection:
        raise_alert(connection, "http/one", room="bus", severity="error", title="trouble")
    mute = {"key": "http/one", "duration": "PT2H", "reason": "known"}
    assert "until" in done(operator.post("/alerts/v1/alerts/mute", json=mute))
    listed = done(operator.get("/alerts/v1/alerts", params={"search": "http/one"}))["items"]
    assert [(one["is_muted"], one["muted_by"]) for one in listed] == [(True, "operator (HTTP)")]
    # What the body lacks, and what it must not have, is refused.
    assert done(operator.post("/alerts/v1/alerts/mute", json={"key": "x"}), 422)
    assert done(operator.post("/alerts/v1/alerts/mute", json={**mute, "by": "me"}), 422)
    forever = operator.post("/alerts/v1/alerts/mute", json={**mute, "duration": "P999999999D"})
    assert done(forever, 422)["code"] == "MA001"


def test_an_alert_is_acknowledged_by_the_caller_only(
    calls: dict[str, httpx.Client], console: RunningConsole
) -> None:
    with psycopg.connect(console.dsn) as connection:
        raise_alert(connection, "http/two", room="bus", severity="error", title="trouble")
    given = {"keys": ["http/two"], "by": "somebody"}
    done(calls["operator"].post("/alerts/v1/alerts/ack", json=given), 422)
    done(calls["operator"].post("/alerts/v1/alerts/ack", json={"keys": ["http/two"]}))
    acked = "select acked_by from alerts.alert where key = 'http/two'"
    assert look(console, acked) == [("operator (HTTP)",)]


def test_an_ended_token_cannot_act_while_it_is_cached(
    calls: dict[str, httpx.Client], bus: Bus, console: RunningConsole
) -> None:
    run_blocking(console.dsn, operations.add, "leaver", role="operator")
    token = run_blocking(console.dsn, operations.token, "leaver")["token"]
    leaver = {"Authorization": f"Bearer {token}"}
    done(calls["viewer"].get("/bus/v1/queues", headers=leaver))
    run_blocking(console.dsn, operations.drop, "leaver")
    pause = calls["viewer"].post(
        "/bus/v1/consumer-figures/pause", json={"queue": "over_http"}, headers=leaver
    )
    assert done(pause, 401)["code"] == "web_token_missing"


def test_payloads_are_not_in_the_audit_log(
    calls: dict[str, httpx.Client], bus: Bus, console: RunningConsole
) -> None:
    (iid,) = bus.post_many("over_http", [{"card": "4111"}])
    (held,) = bus.lease("over_http")
    bus.nack(held, park=True)
    given = {"iid": iid, "data": '{"card": "5500"}'}
    assert done(calls["operator"].post("/bus/v1/dead-messages/edit", json=given))["count"] == 1
    plan = {"name": "cards", "timing": "1 hour", "queue": "over_http", "data": '{"card": "5500"}'}
    done(calls["operator"].post("/bus/v1/schedules/add", json=plan))
    done(calls["operator"].post("/bus/v1/schedules/remove", json={"name": "cards"}))
    audited = look(console, f"select * from console.audit where target in ('{iid}', 'cards')")
    assert len(audited) == 3
    assert "5500" not in str(audited)


@pytest.mark.parametrize(
    ("path", "given"),
    [("replays/stop", {"id": 2**63}), ("dead-messages/redrive", {"ids": [2**63]}),
     ("queues/retain", {"queue": "over_http", "size": 2**63})],
)  # fmt: skip
def test_numbers_beyond_those_of_the_database_are_refused(
    calls: dict[str, httpx.Client], path: str, given: dict[str, Any]
) -> None:
    refused = calls["operator"].post(f"/bus/v1/{path}", json=given)
    assert done(refused, 422)["code"] == "web_request_invalid"


def test_every_list_is_served(calls: dict[str, httpx.Client], bus: Bus) -> None:
    viewer = calls["viewer"]
    paths = viewer.get("/openapi.json").json()["paths"]
    lists = [path for path, verbs in paths.items() if "/v1/" in path and "get" in verbs]
    assert len(lists) > 10
    for path in lists:
        done(viewer.get(path, params={"queue": "over_http"} if path.endswith("messages") else None))


def test_the_asyncapi_document_is_for_accounts(calls: dict[str, httpx.Client], bus: Bus) -> None:
    bus.alter_queue("over_http", schema={"required": ["n"]})
    document = done(calls["viewer"].get("/bus/v1/asyncapi.json"))
    assert document["components"]["schemas"]["over_http"] == {"required": ["n"]}
    anonymous = httpx.get(calls["viewer"].base_url.join("/bus/v1/asyncapi.json"))
    assert anonymous.status_code == 401
