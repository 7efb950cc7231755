"""The index that a column declares exists and orders the list."""

from __future__ import annotations

import importlib
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, sql

from postroad.bus.saga_resources import SAGAS
from postroad.operate import Resource, Row

COMPONENTS = ("alerts", "bus", "console", "coordination", "exchange", "intake")
RESOURCES = {
    resource.name: resource
    for component in COMPONENTS
    for resource in vars(importlib.import_module(f"postroad.{component}.resources")).values()
    if isinstance(resource, Resource) and any(column.index for column in resource.columns)
}
INDEXED = [
    (name, column.name, column.index)
    for name, resource in RESOURCES.items()
    for column in resource.columns
    if column.index
]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Explain pages instead of reading them."""
    found: list[str] = []

    async def explain(
        _: Resource, connection: AsyncConnection[Any], text: sql.Composed, values: list[Any]
    ) -> list[Row]:
        # Without rows every plan is as good as another.
        for way in ("seqscan", "sort", "hashjoin", "mergejoin", "bitmapscan"):
            await connection.execute(f"set enable_{way} = off".encode())
        cursor = await connection.execute(sql.SQL("explain ") + text, values)
        found.append("\n".join(row[0] for row in await cursor.fetchall()))
        return []

    monkeypatch.setattr(Resource, "_rows", explain)
    return found


@pytest.mark.parametrize(("name", "column", "index"), INDEXED)
async def test_an_index_orders_the_list_by_its_column(
    database: str, plans: list[str], name: str, column: str, index: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        for is_descending in (False, True):
            await RESOURCES[name].page(connection, sort=column, is_descending=is_descending)
    assert [index in plan for plan in plans] == [True, True], "\n".join(plans)


async def test_an_index_finds_the_sagas_of_a_state(database: str, plans: list[str]) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        await SAGAS.page(connection, {"state": "stuck"})
    assert "saga_by_state_idx" in plans[0]


def test_long_lists_declare_the_index_of_their_key() -> None:
    assert {name for name, column, _ in INDEXED if column == RESOURCES[name].key} == {
        "alerts.alerts", "alerts.notices", "bus.dead_messages", "bus.dead_originals",
        "console.audit",
        "coordination.events", "exchange.messages", "exchange.processes", "intake.files",
    }  # fmt: skip
