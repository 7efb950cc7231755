"""Pages of a resource: filters, order, cursors, and actions on all that match."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import psycopg
import pytest
from click.testing import CliRunner

from postroad.cli.context import Application
from postroad.cli.derived import action_command
from postroad.exchange.errors import MessageConflict
from postroad.operate import Action, Column, Filter, FilterInvalid, Resource, Row, RowNotFound
from postroad.operate import resource as pages
from postroad.operate.memory import Rows
from postroad.web.cursors import encode_cursor
from postroad.web.errors import CursorInvalid

START = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS = Resource(
    "shop.items",
    "item",
    "(select *, timestamptz '2026-01-02 00:00Z' - made_at as age from item)",
    "List items.",
    (
        Column("id", "Item", "Товар", "number"),
        Column("name", "Name", "Название"),
        Column("state", "State", "Состояние", "state"),
        Column("price", "Price", "Цена", "number", is_sortable=True),
        Column("made_at", "Made", "Сделан", "moment", is_sortable=True, is_nullable=False),
        Column("age", "Age", "Возраст", "duration", is_sortable=True),
    ),
    (
        Filter("state", "State", "Состояние", choices={"open": ("new", "sold"), "gone": ("gone",)}),
        Filter("name", "Name", "Название"),
        Filter("search", "Search", "Поиск", columns=("name", "state"), is_search=True),
    ),
    is_descending=False,
)


async def _mark(
    connection: psycopg.AsyncConnection[Any],
    id_: int,
    *,
    by: str,
    note: Annotated[str, "Why."] = "",
) -> None:
    """Mark an item. Raises nothing."""
    await connection.execute(
        "update item set state = 'marked', name = %s where id = %s", (by + note, id_)
    )


MARK = Action(_mark, "item {id} {be} marked", ITEMS, needs=("by",), when={"state": ("new", "sold")})


async def _mark_many(
    connection: psycopg.AsyncConnection[Any], ids: Sequence[int], *, by: str | None = None
) -> dict[str, Any]:
    """Mark the items with an even id."""
    done = [id_ for id_ in ids if id_ % 2 == 0]
    await connection.execute(
        "update item set state = 'marked', name = %s where id = any (%s)", (by, done)
    )
    return {"ids": done, "count": len(done)}


@pytest.fixture
async def shop(empty_database: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    connection = await psycopg.AsyncConnection.connect(empty_database, autocommit=True)
    async with connection:
        await connection.execute(
            "create table item (id bigint primary key, name text, state text, price int,"
            " made_at timestamptz not null)"
        )
        for number in range(25):
            state = ("new", "sold", "gone")[number % 3]
            price = None if number % 5 == 0 else number % 4
            made_at = START + timedelta(hours=number % 7)
            await connection.execute(
                "insert into item values (%s, %s, %s, %s, %s)",
                (number, f"Item {number}", state, price, made_at),
            )
        yield connection


async def _read(shop: psycopg.AsyncConnection[Any]) -> list[Row]:
    return await ITEMS.all(shop)


IN_MEMORY = replace(ITEMS, source=Rows(_read))
BOTH = pytest.mark.parametrize("items", [ITEMS, IN_MEMORY], ids=["database", "memory"])


@BOTH
@pytest.mark.parametrize("sort", [None, "price", "made_at", "age"])
@pytest.mark.parametrize("is_descending", [False, True])
async def test_pages_together_hold_every_row_once_and_in_order(
    shop: psycopg.AsyncConnection[Any], items: Resource, sort: str | None, is_descending: bool
) -> None:
    after, found = None, []
    while True:
        page = await items.page(shop, sort=sort, is_descending=is_descending, after=after, limit=4)
        found += page.rows
        if (after := page.cursor) is None:
            break
    assert sorted(row["id"] for row in found) == list(range(25))
    values = [row[sort or "id"] for row in found]
    filled = [value for value in values if value is not None]
    assert values == sorted(filled, reverse=is_descending) + [None] * (25 - len(filled))


@BOTH
async def test_filters_select_groups_of_values_and_parts_of_text(
    shop: psycopg.AsyncConnection[Any], items: Resource
) -> None:
    async def count(**filters: str | None) -> int:
        return len((await items.page(shop, filters, limit=100)).rows)

    assert await count(state="open") == 17
    assert await count(state="gone", name=None) == 8
    assert await count(search="ITEM 1") == 11
    assert await count(search="item 1", state="gone") == await items.count(
        shop, {"search": "item 1", "state": "gone"}
    )
    assert await items.count(shop, {}, {"price": (None, 1)}) == 10
    assert (await items.one(shop, 7))["name"] == "Item 7"
    with pytest.raises(RowNotFound):
        await items.one(shop, 99)
    with pytest.raises(FilterInvalid):
        await items.page(shop, {"state": "new"})


@pytest.mark.parametrize("sort", [None, "made_at"])
async def test_a_search_over_a_long_list_stops_and_goes_on_from_there(
    shop: psycopg.AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch, sort: str | None
) -> None:
    monkeypatch.setattr(pages, "MAX_SEARCHED", 7)
    key = Column("id", "Item", "Товар", "id", index="item_pkey")
    items = replace(ITEMS, columns=(key, *ITEMS.columns[1:]))
    after, found, partial = None, [], 0
    while True:
        page = await items.page(
            shop, {"search": "item 1", "state": "open"}, sort=sort, after=after, limit=2
        )
        assert all(row.keys() == {one.name for one in items.columns} for row in page.rows)
        found += page.rows
        partial += page.is_partial
        if (after := page.cursor) is None:
            break
        assert partial < 10
    everything = await ITEMS.page(shop, {"search": "item 1", "state": "open"}, sort=sort)
    assert found == everything.rows
    assert partial > 0
    assert await items.all(shop, {"search": "item 24"}) == [await items.one(shop, 24)]
    assert not (await ITEMS.page(shop, {"search": "nothing"})).is_partial


async def test_a_filter_with_a_default_applies_unless_another_value_is_given(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    condition: Any = "(%s = 'all' or r.state = 'new')"
    shown = Filter("show", "", "", choices=("new", "all"), condition=condition, default="new")
    items = replace(ITEMS, filters=(shown,), label="name", prepare="delete from item where id = 24")
    assert len(await items.all(shop)) == 8
    assert len(await items.all(shop, {"show": "all"})) == 24
    assert (ITEMS.label_name, items.label_name) == ("id", "name")


async def test_unknown_filters_values_and_sort_keys_are_refused(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    for filters, sort in (({"colour": "red"}, None), ({"state": "new"}, None), ({}, "name")):
        with pytest.raises(FilterInvalid):
            await ITEMS.page(shop, filters, sort=sort)


@pytest.mark.parametrize(
    ("sort", "cursor"),
    [
        (None, "?"),
        (None, encode_cursor("x")),
        (None, encode_cursor(2**70)),
        ("made_at", encode_cursor("yesterday", 1)),
        ("made_at", encode_cursor(1)),
        ("price", encode_cursor(1, "a\0")),
        ("age", encode_cursor(1e99, 1)),
    ],
)
async def test_a_cursor_of_another_list_is_refused(
    shop: psycopg.AsyncConnection[Any], sort: str | None, cursor: str
) -> None:
    with pytest.raises(CursorInvalid):
        await ITEMS.page(shop, sort=sort, after=cursor)


@pytest.mark.parametrize("text", ["\ud800", "a\0"])
async def test_text_that_the_database_cannot_store_is_refused(
    shop: psycopg.AsyncConnection[Any], text: str
) -> None:
    items = replace(ITEMS, key="name")
    with pytest.raises(CursorInvalid):
        await items.page(shop, after=encode_cursor(text))
    for name in ("name", "search"):
        with pytest.raises(FilterInvalid):
            await ITEMS.page(shop, {name: text})


async def test_a_cursor_of_deep_brackets_is_refused(shop: psycopg.AsyncConnection[Any]) -> None:
    cursor = base64.urlsafe_b64encode(b"[" * 20_000).decode()
    with pytest.raises(CursorInvalid):
        await ITEMS.page(shop, after=cursor)


async def test_only_rows_with_the_action_are_counted_and_read_for_it(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    assert await ITEMS.count(shop, {}, MARK.when) == 17
    assert await ITEMS.count(shop, {"state": "gone"}, MARK.when) == 0
    assert await ITEMS.count(shop, {}, {"price": (None,)}) == 5
    assert await ITEMS.count(shop, {}, {"price": (None, 1)}) == 10
    read = [rows async for rows in ITEMS.matching(shop, {}, MARK.when)]
    assert {row["state"] for rows in read for row in rows} == {"new", "sold"}


async def test_a_row_that_does_not_exist_is_reported(shop: psycopg.AsyncConnection[Any]) -> None:
    assert (await ITEMS.one(shop, "7"))["name"] == "Item 7"
    with pytest.raises(RowNotFound, match="there is no item 99"):
        await ITEMS.one(shop, 99)


async def test_a_row_that_was_changed_meanwhile_is_skipped(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    async def sell(connection: psycopg.AsyncConnection[Any], id_: int) -> None:
        await connection.execute("update item set state = 'sold' where id = %s", (id_,))
        if id_ == 3:
            raise MessageConflict("item 3 was sold meanwhile")

    action = Action(sell, "", ITEMS, when={"state": ("new",)})
    totals = [so_far async for so_far in action.run_on_matching(shop, {}, {})]
    assert totals[-1] == {"count": 8, "skipped": 1}
    cursor = await shop.execute("select id from item where state = 'new'")
    assert await cursor.fetchall() == [(3,)]


async def test_an_action_on_all_that_match_skips_rows_without_it(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    found = [so_far async for so_far in MARK.run_on_matching(shop, {"by": "ann"}, {}, note="!")]
    assert found == [{"count": 17, "note": "!"}]
    cursor = await shop.execute("select count(*) from item where name = 'ann!'")
    assert await cursor.fetchone() == (17,)
    many = Action(_mark_many, "{count} {be} marked", ITEMS, when={"state": ("gone",)})
    found = [
        so_far async for so_far in many.run_on_matching(shop, {"by": "bob"}, {"state": "gone"})
    ]
    assert found == [{"count": 4, "ids": [2, 8, 14, 20]}]
    assert (await ITEMS.one(shop, 8))["name"] == "bob"
    row = await ITEMS.one(shop, 3)
    assert (await many.run_on(shop, {"by": "bob"}, row, by="eve"))["by"] == "eve"
    assert MARK.summary == "Mark an item."
    assert [(one.name, one.is_option, one.help) for one in MARK.parameters] == [
        ("id_", False, ""),
        ("note", True, "Why."),
    ]


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_a_command_on_all_rows_commits_each_batch_unless_it_is_a_dry_run(
    empty_database: str, is_dry_run: bool
) -> None:
    async def mark(connection: psycopg.AsyncConnection[Any], id_: int) -> dict[str, int]:
        """Mark an item."""
        await connection.execute("update item set name = 'marked' where id = %s", [id_])
        return {"own": int(connection.autocommit)}

    def run(application: object, do: Any, /, *, is_dry_run: bool = False) -> Any:
        return Application().run(do, is_dry_run=is_dry_run, dsn=empty_database)

    columns = (Column("id", "Item", "Товар", "number"), Column("name", "Name", "Название"))
    items = Resource("shop.items", "item", "item", "List items.", columns)
    with psycopg.connect(empty_database) as connection:
        connection.execute("create table item as select 1 as id, '' as name")
        connection.commit()
        command = action_command(Action(mark, "{id} {be} marked", items, is_bulk=True), run)
        given = ["--all", "--json", *(["--dry-run"] if is_dry_run else [])]
        done = json.loads(CliRunner().invoke(command, given).output)
        names = connection.execute("select name from item").fetchall()
    assert (done["count"], done["own"]) == (1, 0 if is_dry_run else 1)
    assert names == [("" if is_dry_run else "marked",)]


async def test_a_filter_that_names_rows_of_another_list_offers_and_checks_them(
    shop: psycopg.AsyncConnection[Any],
) -> None:
    item = Filter("item", "Item", "Товар", of=ITEMS)
    sales = Resource("shop.sales", "sale", "(select 1 as id)", "List sales.", (), (item,))
    assert await sales.offered(shop, item) == [str(number) for number in range(25)]
    await sales.check_named(shop, {"item": "7"})
    with pytest.raises(RowNotFound, match="there is no item 99"):
        await sales.check_named(shop, {"item": "99"})


@pytest.mark.parametrize(
    ("value", "is_dry_run", "sentence"),
    [
        (1, False, "1 is sent"),
        (3, False, "3 are sent"),
        (3, True, "3 would be sent"),
        (0, False, "nothing to send"),
    ],
)
async def test_the_report_of_an_action_agrees_with_its_result(
    value: int, is_dry_run: bool, sentence: str
) -> None:
    async def send() -> int:
        return value

    action = Action(send, "{sent} {be} sent", result="sent", unchanged="nothing to send")
    facts = await action.run(None, {})
    assert facts == {"sent": value}
    assert action.report(facts, is_dry_run=is_dry_run) == sentence
