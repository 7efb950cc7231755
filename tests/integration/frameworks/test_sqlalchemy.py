"""The bus in transactions of SQLAlchemy, blocking and awaited."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postroad.bus import Bus, InvalidArgument
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


async def test_posts_and_consumption_belong_to_the_awaited_session(orders: str) -> None:
    engine = create_async_engine(sqlalchemy_url(orders, "psycopg"))
    async with AsyncSession(engine) as session:
        await (await async_bus(session)).post("orders", {"number": "1"})
        await session.rollback()
        await (await async_bus(session)).post("orders", {"number": "2"})
        await session.commit()
    async with engine.connect() as connection:
        assert numbers(await (await async_bus(connection)).consume("orders", amount=10)) == ["2"]
        await connection.rollback()
        assert numbers(await (await async_bus(connection)).consume("orders", amount=10)) == ["2"]
        await connection.commit()
    await engine.dispose()


async def test_with_asyncpg_the_sql_functions_are_called(orders: str) -> None:
    engine = create_async_engine(sqlalchemy_url(orders, "asyncpg"))
    async with AsyncSession(engine) as session:
        with pytest.raises(InvalidArgument):
            await async_bus(session)
        post = text("select mbus.post('orders', cast(cast(:data as text) as jsonb))")
        if (await session.scalar(text("select payload::text from mbus.queues"))) == "jsonb":
            await session.execute(post, {"data": '{"number": "1"}'})
            await session.rollback()
            await session.execute(post, {"data": '{"number": "2"}'})
            await session.commit()
            taken = text("select cast(data as text) from mbus.consumen_orders_by_default(10)")
            assert list(await session.scalars(taken)) == ['{"number": "2"}']
            await session.commit()
    await engine.dispose()
