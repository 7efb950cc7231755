"""The bus in transactions of SQLAlchemy, blocking and awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postroad.bus import (
    Bus,
    ConsumerNotFound,
    InvalidArgument,
    InvalidSelector,
    QueueNotFound,
)
from postroad.bus.payload import Payload
from postroad.integrations.sqlalchemy import async_bus, bus
from tests.integration.broker.senders import sqlalchemy_url


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    number: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture(params=["hstore", "jsonb"])
def orders(request: pytest.FixtureRequest, database: str) -> str:
    with Bus(database) as own:
        own.create_queue("orders", payload=request.param)
    return database


def numbers(messages: list[Any]) -> list[str]:
    return [message.data["number"] for message in messages]


def test_posts_and_consumption_belong_to_the_session(orders: str) -> None:
    engine = create_engine(sqlalchemy_url(orders, "psycopg"))
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Order(number=1))
        bus(session).post("orders", {"number": "1"})
        session.rollback()
        session.add(Order(number=2))
        bus(session).post("orders", {"number": "2"}, headers={"group": "a"})
        session.commit()
    with Session(engine) as session:
        assert numbers(bus(session).consume("orders")) == ["2"]
        session.rollback()
        [message] = bus(session).consume("orders")
        assert message.headers["group"] == "a"
        session.commit()
        assert bus(session).consume("orders") == []
        assert [order.number for order in session.query(Order)] == [2]
    engine.dispose()


def test_a_connection_that_has_not_begun_commits_what_was_posted(orders: str) -> None:
    engine = create_engine(sqlalchemy_url(orders, "psycopg"))
    with engine.connect() as connection:
        bus(connection).post("orders", {"number": "1"})
        connection.commit()
        bus(connection).post("orders", {"number": "2"})
    with engine.begin() as connection:
        assert numbers(bus(connection).consume("orders", amount=10)) == ["1"]
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_posts_and_consumption_belong_to_the_awaited_session(
    orders: str, driver: str
) -> None:
    engine = create_async_engine(sqlalchemy_url(orders, driver))
    async with AsyncSession(engine) as session:
        await session.execute(text("create table shop_order (number int)"))
        await session.commit()
        await (await async_bus(session)).post("orders", {"number": "1"})
        await session.execute(text("insert into shop_order values (1)"))
        await session.rollback()
        await (await async_bus(session)).post("orders", {"number": "2"})
        await session.commit()
        assert list(await session.scalars(text("select number from shop_order"))) == []
    async with engine.connect() as connection:
        assert numbers(await (await async_bus(connection)).consume("orders", amount=10)) == ["2"]
        await connection.rollback()
        assert numbers(await (await async_bus(connection)).consume("orders", amount=10)) == ["2"]
        await connection.commit()
    await engine.dispose()


@pytest.fixture
async def session(database: str) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(sqlalchemy_url(database, "asyncpg"))
    async with AsyncSession(engine) as opened:
        yield opened
    await engine.dispose()


VALUES: dict[Payload, list[Any]] = {
    "hstore": [{"a": None, 'b"': "c\\'$1%s"}, {}],
    "jsonb": [{"n": [1, 2.5, "é'"]}, None, "null"],
    "text": ["", "a\\b'{}\"$1 %s :x"],
    "bytea": [b"", b"\x00\xff'"],
}


@pytest.mark.parametrize("payload", VALUES)
async def test_asyncpg_sends_and_reads_every_payload(
    session: AsyncSession, payload: Payload
) -> None:
    bus = await async_bus(session)
    await bus.create_queue("orders", payload=payload)
    await bus.create_consumer("orders", "late")
    values = VALUES[payload]
    moment = datetime.now(UTC) + timedelta(hours=1)
    headers: list[dict[str, str | None]] = [{"n": str(n), "q": '"'} for n in range(len(values))]
    await bus.post_many("orders", values, headers, {"p": "1"}, expires=moment)
    iid = await bus.post("orders", values[1], {"group": "a"}, {"p": None})
    taken = await bus.consume("orders", amount=10)
    assert [message.data for message in taken] == [*values, values[1]]
    assert [message.headers.get("n") for message in taken[:-1]] == [
        str(n) for n in range(len(values))
    ]
    assert taken[0].properties == {"p": "1"}
    assert (taken[0].expires, taken[-1].iid, taken[0].received) == (moment, iid, ())
    assert await bus.give_back(taken[-1], error="no'") == "delayed"
    leased = await bus.lease("orders", "late", 10, ttl=60)
    assert [message.data for message in leased] == [*values, values[1]]
    assert await bus.extend_lease(leased[0], 90) > leased[0].leased_until
    assert await bus.extend_many(leased, 90) == []
    assert await bus.nack(leased[0], dead_letter=True, error="bad") == "dmq"
    await bus.ack(leased[1])
    assert await bus.ack_many([leased[1], *leased[2:]], "late") == [leased[1].iid]
    [dead] = await bus.dead()
    assert (dead.iid, dead.consumer, dead.error) == (leased[0].iid, "late", "bad")
    assert await bus.redrive("orders") == 1
    assert {each.consumer for each in await bus.status("orders")} == {"default", "late"}
    assert iid in {each.iid for each in await bus.history("orders")}
    assert await bus.peek("orders", iid)
    await bus.schedule("nightly", "@daily", "orders", values[1])
    planned = await bus.run_now("nightly")
    assert [(each.iid, each.data) for each in await bus.consume("orders")] == [(planned, values[1])]


async def test_errors_of_asyncpg_are_those_of_the_bus(session: AsyncSession) -> None:
    with pytest.raises(QueueNotFound) as caught:
        await (await async_bus(session)).post("orders", {})
    assert "mbus.create_queue" in str(caught.value.hint)
    await session.rollback()
    bus = await async_bus(session)
    await bus.create_queue("orders", payload="text")
    await session.commit()
    bus = await async_bus(session)
    with pytest.raises(ConsumerNotFound):
        await bus.consume("orders", "none")
    await session.rollback()
    bus = await async_bus(session)
    with pytest.raises(InvalidSelector):
        await bus.create_consumer("orders", "bad", "nonsense")
    await session.rollback()
    bus = await async_bus(session)
    with pytest.raises(InvalidArgument, match="own connections"):
        bus.subscribe("orders")
    with pytest.raises(DBAPIError):
        await bus.consume("orders", amount=2**40)


async def test_an_error_with_an_empty_detail_is_raised_as_it_is(session: AsyncSession) -> None:
    await session.execute(
        text(
            "create function refuse() returns trigger language plpgsql as"
            " $$ begin raise exception 'full' using detail = '', hint = ''; end $$"
        )
    )
    bus = await async_bus(session)
    await bus.create_queue("orders", payload="text")
    await session.execute(
        text("create trigger refuse before insert on mbus.queue execute function refuse()")
    )
    with pytest.raises(DBAPIError, match="full"):
        await bus.create_queue("more")


async def test_a_temporary_consumer_belongs_to_the_session_of_asyncpg(
    session: AsyncSession,
) -> None:
    bus = await async_bus(session)
    await bus.create_queue("orders")
    name = await bus.create_temporary_consumer("orders")
    await bus.post("orders", {"a": "1"})
    assert [message.data for message in await bus.consume_temporary(name)] == [{"a": "1"}]
