"""Both ends of a bridge and the bridge itself are killed: each message arrives exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack

import psycopg
import pytest

from postroad.bus import Maintenance
from postroad.cli.components import SCHEMAS
from postroad.testing import wait_until
from tests.chaos.bridge_load import (
    IS_STRESS,
    Process,
    Producer,
    add_bridge,
    arrived,
    crash,
    prepare,
    read_all,
    wreak,
)
from tests.fixtures.postgres import running_server
from tests.fixtures.rabbitmq import RabbitServer

MESSAGES = 200_000 if IS_STRESS else 6_000
BLOWS = 24 if IS_STRESS else 5
RABBIT_MESSAGES = 200_000 if IS_STRESS else 2_000
RABBIT_BLOWS = 20 if IS_STRESS else 5


def terminate_some(dsn: str) -> Callable[[], None]:
    """Give a blow that ends backends of the bridge, as an administrator or a network would."""

    def blow() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'postroad bridge%' and random() < 0.5"
            )

    return blow


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1200 if IS_STRESS else 180)
def test_each_message_crosses_once_whoever_is_killed(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        source_server = stack.enter_context(running_server())
        target_server = stack.enter_context(running_server())
        a = stack.enter_context(source_server.clone(*SCHEMAS))
        b = stack.enter_context(target_server.clone(*SCHEMAS))
        prepare(a, is_source=True)
        prepare(b, is_source=False)
        bridge = Process("--database-url", a, "bridge", "run")
        add_bridge(a, source="home", target=b, queue="orders")
        for dsn in (a, b):
            stack.enter_context(Maintenance(dsn))
        stack.enter_context(bridge)
        producer = Producer(a, MESSAGES)
        producer.start()

        def kill_bridge() -> None:
            bridge.kill()
            bridge.start()

        wreak(
            b,
            MESSAGES,
            [
                kill_bridge,
                lambda: crash(source_server),
                lambda: crash(target_server),
                terminate_some(a),
                terminate_some(b),
            ],
            random.Random(7),
            BLOWS,
        )
        producer.join(timeout=300)
        wait_until(lambda: arrived(b) >= MESSAGES, what="all arrived", timeout_seconds=300)
        numbers = read_all(b)
        with psycopg.connect(b) as connection:
            (rows,) = connection.execute("select count(*) from bridge.ledger").fetchone() or (0,)
    with capsys.disabled():
        print(  # noqa: T201 - a figure that people ask for
            f"\nbridge: posted {MESSAGES}, arrived {len(numbers)}, distinct {len(set(numbers))},"
            f" kills {BLOWS}, rows of the ledger {rows}"
        )
    assert len(numbers) == len(set(numbers)) == MESSAGES
    assert numbers == sorted(numbers), "the order of the queue was lost"
    assert rows < MESSAGES / 10


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1800 if IS_STRESS else 180)
def test_each_message_crosses_rabbitmq_once_whoever_is_killed(
    rabbitmq: RabbitServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        source_server = stack.enter_context(running_server())
        target_server = stack.enter_context(running_server())
        a = stack.enter_context(source_server.clone(*SCHEMAS))
        b = stack.enter_context(target_server.clone(*SCHEMAS))
        prepare(a, is_source=True)
        prepare(b, is_source=False)
        name = rabbitmq.unique("orders")
        out = Process("--database-url", a, "bridge", "run")
        back = Process("--database-url", b, "bridge", "run")
        add_bridge(a, source="home", target=rabbitmq.url, queue="orders", queue_at_target=name)
        add_bridge(b, source=rabbitmq.url, target="home", queue=name, queue_at_target="orders")
        for dsn in (a, b):
            stack.enter_context(Maintenance(dsn))
        stack.enter_context(out)
        stack.enter_context(back)
        producer = Producer(a, RABBIT_MESSAGES)
        producer.start()
        wait_until(lambda: arrived(b) > 0, what="the first arrived", timeout_seconds=60)
        rabbitmq.settle(name)

        def again(process: Process) -> Callable[[], None]:
            def blow() -> None:
                process.kill()
                process.start()

            return blow

        def kill_broker() -> None:
            rabbitmq.kill()
            rabbitmq.start()

        wreak(
            b,
            RABBIT_MESSAGES,
            [
                kill_broker,
                again(out),
                again(back),
                lambda: crash(source_server),
                lambda: crash(target_server),
            ],
            random.Random(8),
            RABBIT_BLOWS,
        )
        producer.join(timeout=300)
        wait_until(lambda: arrived(b) >= RABBIT_MESSAGES, what="all arrived", timeout_seconds=600)
        numbers = read_all(b)
        with psycopg.connect(b) as connection:
            (dropped,) = connection.execute("select dropped from bridge.status").fetchone() or (0,)
    with capsys.disabled():
        print(  # noqa: T201 - a figure that people ask for
            f"\nRabbitMQ: posted {RABBIT_MESSAGES}, arrived {len(numbers)}, distinct"
            f" {len(set(numbers))}, kills {RABBIT_BLOWS}, came again and were dropped {dropped}"
        )
    assert len(numbers) == len(set(numbers)) == RABBIT_MESSAGES
