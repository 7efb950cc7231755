"""The services and the bridges between their databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from math import ceil

import psycopg
import pytest
from jsonschema import Draft202012Validator

from postroad.alerts import raise_alert_async
from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application
from postroad.cli.parts import PartContext
from postroad.cli.parts_coordination import Coordination
from postroad.coordination import Change, Reader, RoleMissing, Writer
from postroad.coordination.sample import SampleWriter
from postroad.postgres import connect_async
from postroad.testing import TestServer, wait_until_async
from tests.integration.coordination.deployment import Deployment, open_deployment
from tests.integration.coordination.message_schemas import SCHEMAS as MESSAGE_SCHEMAS


async def _write(deployment: Deployment, *statements: str, mode: str | None = None) -> int:
    connection = await connect_async(deployment.dsns["writer"])
    async with connection:
        if mode is not None:
            await connection.execute("select coordination.set_mode(%s)", (mode,))
        for statement in statements:
            await connection.execute(statement.encode())
        cursor = await connection.execute("select coordination.current_event()")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def _add(count: int, name: str = "x") -> str:
    return (
        'insert into "DummyItem" ("CorrelationId", "Name")'
        f" select gen_random_uuid(), '{name}' from generate_series(1, {count})"
    )


async def _posted(deployment: Deployment) -> int:
    """Count what was posted by those who say something, not what bridges carried on."""
    total = 0
    for part, queue in (
        ("writer", "co_events"),
        ("lists", "co_votes"),
        ("coordinator", "co_decide"),
    ):
        total += (await deployment.run(part, f"select (mbus.positions(array['{queue}']))[1]"))[0][
            0
        ] or 0
    return total


async def test_events_of_both_modes_arrive_with_few_messages(newest_server: TestServer) -> None:
    # Nothing is to be said twice because the machine is slow.
    async with open_deployment(newest_server, quick=timedelta(minutes=5), page=10) as deployment:
        reader = deployment.services["lists"]
        assert isinstance(reader, Reader)
        for mode, most in (("replicate", 3), ("two-phase", 4)):
            for size in (1, 10, 11, 100):
                before, pulls = await _posted(deployment), reader.pulls
                event = await _write(deployment, _add(size), mode=mode)
                assert await deployment.until_finished(event) == "Committed"
                assert await _posted(deployment) - before <= most
                # Looks that find nothing come on top, from the clock and from late messages.
                assert reader.pulls - pulls >= ceil(size / 10)
        await deployment.until_same("lists")


async def test_a_check_of_the_reader_vetoes(newest_server: TestServer) -> None:
    async def refuse(event: int, changes: Sequence[Change]) -> str | None:
        del event
        bad = [change for change in changes if change.content.get("Name") == "bad"]
        return f"{len(bad)} bad names" if bad else None

    async with open_deployment(newest_server, ("one", "two"), checks=[refuse]) as deployment:
        good = await _write(deployment, _add(2, "good"), mode="two-phase")
        assert await deployment.until_finished(good) == "Committed"
        bad = await _write(deployment, _add(2, "bad"), mode="two-phase")
        assert await deployment.until_finished(bad) == "Canceled"
        await deployment.until_same("one", "two")
        [(count,)] = await deployment.run("writer", 'select count(*) from "DummyItem"')
        assert count == 2


async def test_a_check_that_raises_is_a_veto_and_the_reader_goes_on(
    newest_server: TestServer,
) -> None:
    async def check(event: int, changes: Sequence[Change]) -> str | None:
        if changes[0].content["Name"] == "odd":
            raise LookupError("no such price list")

    async with open_deployment(newest_server, checks=[check]) as deployment:
        event = await _write(deployment, _add(1, "odd"), mode="two-phase")
        assert await deployment.until_finished(event) == "Canceled"
        reason = "select reason from coordination.events where event_id = %s"
        [(text,)] = await deployment.run("coordinator", reason, event)
        assert "the check check failed: LookupError: no such price list" in text
        following = await _write(deployment, _add(1, "even"), mode="two-phase")
        assert await deployment.until_finished(following) == "Committed"
        assert deployment.services["lists"].is_running


async def test_a_check_that_is_overtaken_by_a_cancellation_harms_nobody(
    newest_server: TestServer,
) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def check(event: int, changes: Sequence[Change]) -> str | None:
        asked.set()
        await cancelled.wait()

    async with open_deployment(newest_server, checks=[check]) as deployment:
        event = await _write(deployment, _add(1), mode="two-phase")
        try:
            async with asyncio.timeout(60):
                await asked.wait()

            async def is_known() -> bool:
                found = "select event_id from coordination.events where event_id = %s"
                return bool(await deployment.run("coordinator", found, event))

            # The Reader may have pulled it before the Coordinator has received it.
            await wait_until_async(is_known, what="an event that the Coordinator has")
            await deployment.run("coordinator", "select coordination.cancel(%s)", event)

            async def is_dropped() -> bool:
                return not await deployment.run(
                    "lists", "select event_id from coordination.staging"
                )

            await wait_until_async(is_dropped, what="a reader that has dropped the event")
        finally:
            # Also after a failure: the reader would wait for its check for ever.
            cancelled.set()
        assert await deployment.until_finished(event) == "Canceled"
        await _write(deployment, _add(1))
        await deployment.until_same("lists")
        assert deployment.services["lists"].is_running


async def test_a_removed_reader_that_comes_back_takes_a_snapshot_by_itself(
    newest_server: TestServer,
) -> None:
    async with open_deployment(newest_server) as deployment:
        await _write(deployment, _add(1))
        await deployment.until_same("lists")
        await deployment.services["lists"].stop()
        await deployment.run("coordinator", "select coordination.remove_reader('lists')")
        event = await _write(deployment, _add(1))
        assert await deployment.until_finished(event) == "Committed"
        await deployment.run("writer", "select coordination.purge('0')")
        reader = Reader(deployment.dsns["lists"], deployment.dsns["writer"])
        async with reader:
            await deployment.until_same("lists")

            async def is_known() -> bool:
                return bool(
                    await deployment.run("coordinator", "select name from coordination.reader")
                )

            await wait_until_async(is_known, what="a reader that counts again")
            generation = await deployment.run(
                "lists", "select generation from coordination.progress"
            )
            assert generation >= [(2,)]
            await _write(deployment, _add(1))
            await deployment.until_same("lists")


async def test_what_the_databases_report_is_known_in_the_house(
    newest_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        deployment, *databases = (
            stack.enter_context(newest_server.clone(*SCHEMAS)) for _ in range(4)
        )
        for part, dsn in zip(("WRITER", "COORDINATOR", "READER"), databases, strict=True):
            monkeypatch.setenv(f"POSTROAD_COORDINATION__{part}_URL", dsn)
        # The part as `postroad up` makes it.
        async with Coordination(PartContext(Application(), deployment)):
            for dsn in databases:
                async with await connect_async(dsn) as connection:
                    await raise_alert_async(
                        connection, dsn[-50:], room="coordination", severity="error", title="x"
                    )
            async with await connect_async(deployment, autocommit=True) as connection:

                async def are_known() -> bool:
                    cursor = await connection.execute("select count(*) from alerts.report")
                    return await cursor.fetchone() == (3,)

                await wait_until_async(are_known, what="three reports in the deployment")


async def test_services_go_on_when_their_sessions_are_cut(newest_server: TestServer) -> None:
    async with open_deployment(newest_server) as deployment:
        async with SampleWriter(deployment.dsns["writer"]) as sample:
            sample.signals.listen("changed")
            for _ in range(3):
                for dsn in deployment.dsns.values():
                    with psycopg.connect(dsn, autocommit=True) as session:
                        session.execute(
                            "select pg_terminate_backend(pid) from pg_stat_activity"
                            " where datname = current_database() and pid <> pg_backend_pid()"
                        )
                await sample.signals.wait("changed")
        await deployment.until_same("lists")


async def test_two_writers_and_two_readers_on_one_database_do_no_harm(
    newest_server: TestServer,
) -> None:
    async with open_deployment(newest_server) as deployment:
        dsns = deployment.dsns
        async with (
            Writer(dsns["writer"]),
            Reader(dsns["lists"], dsns["writer"], page=3),
        ):
            for _ in range(20):
                event = await _write(deployment, _add(5))
            assert await deployment.until_finished(event) == "Committed"
            await deployment.until_same("lists")
        [(numbers, events)] = await deployment.run(
            "lists", 'select count("Number"), count(distinct "Id") from coordination."AppEvent"'
        )
        assert numbers == events == 20


async def test_a_service_of_the_wrong_database_fails_with_what_is_wrong(
    newest_server: TestServer,
) -> None:
    with newest_server.clone(*SCHEMAS) as dsn:
        writer = Writer(dsn)
        await writer.start()
        with pytest.raises(RoleMissing, match="this database is no writer"):
            await writer.join()


async def test_messages_keep_to_their_published_schemas(newest_server: TestServer) -> None:
    async with open_deployment(newest_server) as deployment:
        kinds = {"co_events": "writer", "co_votes": "lists", "co_decide": "coordinator"}
        for queue, part in kinds.items():
            await deployment.run(part, "select mbus.create_consumer(%s, 'witness')", queue)
        await deployment.until_finished(await _write(deployment, _add(1)))
        await deployment.until_finished(await _write(deployment, _add(1), mode="two-phase"))
        await deployment.run("coordinator", "select coordination.retry(1)")
        seen = set()
        for queue, part in kinds.items():

            async def messages(part: str = part, queue: str = queue) -> list[tuple[object, ...]]:
                return await deployment.run(
                    part, f"select data from mbus.consumen_{queue}_by_witness(100)"
                )

            for (message,) in await wait_until_async(messages, what=f"messages of {queue}"):
                kind = message["kind"]
                Draft202012Validator(MESSAGE_SCHEMAS[kind]).validate(message)
                seen.add(kind)
        assert {"events", "progress", "decisions"} <= seen
