"""Notices for RabbitMQ wait in the outbox until they are published."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aio_pika
import psycopg
import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from postroad.bridge import RabbitOut, RabbitRoute
from postroad.intake.engine import Engine
from postroad.intake.notice import BRIDGE, open_outbox
from postroad.settings.intake import IntakeSettings
from tests.fixtures.rabbitmq import RabbitServer


@pytest.fixture
def intake_settings(rabbitmq: RabbitServer) -> IntakeSettings:
    return IntakeSettings(
        amqp_url=SecretStr(rabbitmq.url),
        amqp_exchange=rabbitmq.unique("file_events"),
        amqp_queue=rabbitmq.unique("processed"),
    )


async def _post(engine: Engine, *numbers: int) -> None:
    for number in numbers:
        await engine.journal.rows(
            "select mbus.post_file_events_amqp(data => %s)", Jsonb({"file_id": number})
        )


def _unread(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        rows: list[Any] = connection.execute(
            "select consumer, ready from mbus.status where queue = 'file_events_amqp'"
        ).fetchall()
    return dict(rows)


async def _published(settings: IntakeSettings, count: int) -> list[int]:
    assert settings.amqp_url is not None
    found: list[int] = []
    connection = await aio_pika.connect(settings.amqp_url.get_secret_value())
    async with connection, asyncio.timeout(30):
        queue = await (await connection.channel()).get_queue(settings.amqp_queue)
        async with queue.iterator() as messages:
            async for message in messages:
                await message.ack()
                found.append(json.loads(message.body)["file_id"])
                if len(found) == count:
                    return sorted(found)
    return found


async def test_notices_posted_before_the_outbox_first_runs_are_published(
    engine: Engine, database: str, intake_settings: IntakeSettings
) -> None:
    await _post(engine, 1, 2, 3)
    outbox = await open_outbox(database, intake_settings)
    assert outbox is not None
    async with outbox:
        await _post(engine, 4)
        assert await _published(intake_settings, 4) == [1, 2, 3, 4]
    assert _unread(database) == {"default": 0}


async def test_an_outbox_with_a_consumer_of_its_own_keeps_it_and_no_other(
    engine: Engine, database: str, intake_settings: IntakeSettings
) -> None:
    assert intake_settings.amqp_url is not None
    older = RabbitOut(
        BRIDGE,
        source=database,
        url=intake_settings.amqp_url.get_secret_value(),
        queue="file_events_amqp",
        route=RabbitRoute(queue=intake_settings.amqp_queue),
    )
    await older.install()
    await _post(engine, 1, 2)
    outbox = await open_outbox(database, intake_settings)
    assert outbox is not None
    assert _unread(database) == {f"to_{BRIDGE}": 2}
    async with outbox:
        assert await _published(intake_settings, 2) == [1, 2]
    assert _unread(database) == {f"to_{BRIDGE}": 0}
