"""Whatever is sent, no answer is a 500; whatever happens in which order, a model agrees."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postroad.exchange.check import check
from postroad.exchange.files import Storage
from postroad.postgres.postmaster import read_postmaster
from postroad.testing import TestServer, wait_until_async
from tests.fixtures.exchange import BASE, Caller, LocalExchange, new_root

pytestmark = pytest.mark.chaos

IS_FULL = bool(os.environ.get("POSTROAD_STRESS"))
REQUESTS = 50 if IS_FULL else 4
STORIES = 100 if IS_FULL else 6
CYCLES = 200 if IS_FULL else 40


@pytest.mark.timeout(1200 if IS_FULL else 180)
async def test_no_request_that_the_openapi_document_allows_or_forbids_is_a_500(
    exchange: LocalExchange,
) -> None:
    await exchange.caller("phone").send("m1")
    admin = exchange.caller("admin", is_admin=True)
    headers = {"Authorization": f"Bearer {admin.token}"}

    def attack() -> int:
        schema = schemathesis.openapi.from_url(f"{exchange.server.url}{BASE}/openapi.json")
        count = 0
        for found in schema.get_all_operations():
            operation = found.ok()

            @settings(
                max_examples=REQUESTS,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=operation.as_strategy())
            def check_one(case: Any) -> None:
                answer = case.call(headers=headers)
                assert answer.status_code < 500, (case.method, case.path, answer.text)

            check_one()
            count += 1
        return count

    assert await asyncio.to_thread(attack) >= 17


STEPS = st.lists(
    st.sampled_from(
        ["send", "start", "prepare", "commit", "abort", "fail", "die", "resolve", "restart"]
    ),
    max_size=14,
)


class Model:
    """What must be: each message queued or done, each process of one outcome."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.committed: set[str] = set()
        self.process: dict[str, Any] | None = None
        self.is_prepared = False
        self.in_doubt: dict[str, list[str]] = {}
        self.erp_committed: set[str] = set()


async def _step(local: LocalExchange, model: Model, step: str, callers: tuple[Any, Any]) -> None:
    phone, erp = callers
    process = model.process
    match step:
        case "send":
            id_ = f"m{len(model.sent)}"
            await phone.send(id_)
            model.sent.append(id_)
        case "start":
            answer = await erp.start()
            if model.in_doubt:
                assert answer == {"status": "RESOLVE", "processes": list(model.in_doubt)}
            elif process is not None:
                assert answer["status"] == "BUSY"
            else:
                queued = [id_ for id_ in model.sent if id_ not in model.committed]
                assert answer["status"] == ("STARTED" if queued else "IDLE")
                if queued:
                    model.process = answer["process"]
                    assert [file["id"] for file in answer["process"]["files"]] == queued
        case "prepare" if process is not None:
            assert (await erp.prepare(process["id"]))[1] == {"status": "OK"}
            model.is_prepared = True
        case "commit" if process is not None and model.is_prepared:
            assert await erp.end(process["id"], "commit") == (200, {"status": "OK"})
            model.committed |= {file["id"] for file in process["files"]}
            model.process, model.is_prepared = None, False
        case "commit" if process is not None:
            assert (await erp.end(process["id"], "commit"))[0] == 409
        case "abort" | "fail" if process is not None:
            assert (await erp.end(process["id"], step, error="x"))[0] == 200
            model.process, model.is_prepared = None, False
        case "die" if process is not None and model.is_prepared:
            # The ERP commits and dies before it says so.
            model.erp_committed.add(process["id"])
        case "resolve" if model.in_doubt:
            answers = {
                id_: "COMMITTED" if id_ in model.erp_committed else "ABORTED"
                for id_ in model.in_doubt
            }
            answer = await erp.start(resolved=answers)
            for id_, outcome in answers.items():
                if outcome == "COMMITTED":
                    model.committed |= set(model.in_doubt[id_])
            model.in_doubt.clear()
            model.process = answer.get("process")
        case "restart":
            await local.restart()
            if process is not None and model.is_prepared:
                model.in_doubt[process["id"]] = [file["id"] for file in process["files"]]
                model.process, model.is_prepared = None, False


@pytest.mark.slow
@pytest.mark.timeout(1200 if IS_FULL else 240)
def test_a_model_agrees_with_every_order_of_events(server: TestServer) -> None:
    from postroad.cli.components import SCHEMAS

    async def story(steps: list[str]) -> None:
        with server.clone(*SCHEMAS) as dsn:
            local = LocalExchange(dsn, new_root(), suspect_after=1000)
            await local.server.start()
            await local.server.ready()
            try:
                callers = local.caller("phone"), local.caller("erp")
                model = Model()
                for step in steps:
                    await _step(local, model, step, callers)
                rows = local.rows("select id, state from exchange.message where kind = 'message'")
                done = {row["id"] for row in rows if row["state"] == "done"}
                assert done == model.committed
                assert {row["id"] for row in rows} == set(model.sent)
            finally:
                await local.close()
            with psycopg.connect(dsn) as connection:
                assert check(connection, Storage(local.root)) == []

    @settings(max_examples=STORIES, deadline=None, database=None, derandomize=True)
    @given(STEPS)
    def stories(steps: list[str]) -> None:
        asyncio.run(story(steps))

    stories()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_postgresql_stopped_at_once_in_the_middle_of_calls(own_server: TestServer) -> None:
    """The journal dies and comes back; callers repeat, and everything is there once."""
    from postroad.cli.components import SCHEMAS

    name = own_server.create(own_server.template(*SCHEMAS))
    local = LocalExchange(own_server.dsn(name), new_root())
    await local.server.start()
    await local.server.ready()
    working = asyncio.create_task(_work(local.caller("phone"), local.caller("erp"), CYCLES))
    for _ in range(3):
        await local.server.signals.wait("swept")
        postmaster = read_postmaster(own_server.embedded.cluster.data)
        assert postmaster is not None
        # As `pg_ctl stop -m immediate` does.
        os.kill(postmaster.pid, signal.SIGQUIT)

        async def is_down() -> bool:
            return not own_server.embedded.is_running

        await wait_until_async(is_down, what="PostgreSQL is down")
        await asyncio.to_thread(own_server.embedded.revive)
    assert await working == [f"m{number}" for number in range(CYCLES)]
    rows = local.rows("select id, state from exchange.message where kind = 'message'")
    assert {row["id"]: row["state"] for row in rows} == dict.fromkeys(await working, "done")
    await local.close()


async def _work(phone: Caller, erp: Caller, count: int) -> list[str]:
    """Send, start, prepare and commit, one after the other; returns what was handed out."""
    seen = []
    for number in range(count):
        message = {"id": f"m{number}", "database": "sales", "body": number}
        await _until_served(phone, "/messages", message)
        wish = {"database": "sales", "attempt": f"a{number}"}
        process = (await _until_served(erp, "/processes", wish))["process"]
        reply = {"name": f"r{number}", "recipient": "phone", "body": number}
        for verb, body in (("prepare", {"replies": [reply]}), ("commit", {})):
            path = f"/processes/{process['id']}/{verb}"
            assert await _until_served(erp, path, body) == {"status": "OK"}
        seen += [file["id"] for file in process["files"]]
    return seen


async def _until_served(caller: Caller, path: str, body: Any) -> Any:
    """Repeat a call while the journal is away."""
    while (answer := await caller.call("POST", path, json=body))[0] == 503:
        pass
    assert answer[0] in (200, 201), answer
    return answer[1]
