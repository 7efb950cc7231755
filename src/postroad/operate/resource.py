"""Resources: lists of rows with their columns, filters and sort keys, read page by page.

A page is found by the key of the last row of the page before it and never by an offset: the
thousandth page costs as much as the first, and inserted or deleted rows neither repeat nor hide
others. The query is built from names that a component declares; callers pass only values.

A search over a list whose key has an index reads at most `MAX_SEARCHED` rows. The page may then
have fewer rows than requested, or none, and its cursor continues where the search stopped.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, LiteralString, Protocol, TypeAlias

from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from postroad.errors import PostroadError
from postroad.web.cursors import decode_cursor, encode_cursor
from postroad.web.errors import CursorInvalid, RequestInvalid, ResourceMissing

Row: TypeAlias = dict[str, Any]
# The kinds of columns: how a value is shown in the console, and its type in OpenAPI.
Kind = Literal[
    "text", "code", "id", "number", "alarm", "rate", "bytes", "boolean", "moment", "since",
    "duration", "state", "word", "list", "json",
]  # fmt: skip
NUMBERS = ("id", "number", "alarm", "bytes")
LIMIT_DEFAULT = 50
MAX_KEYS = 1_000
# Maximum number of rows that a page with a search reads.
MAX_SEARCHED = 10_000
# Counting all rows that match stops here.
MAX_COUNTED = 100_000
# Maximum number of values that a filter offers.
MAX_OFFERED = 500


class FilterInvalid(RequestInvalid):
    """The list does not have this filter, sort key or value."""


class RowNotFound(ResourceMissing):
    """The list has no such row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a list: its name in JSON, its titles in English and Russian, and its kind.

    `id` is a number that identifies something, `alarm` a number that is red unless it is zero,
    `since` a time that is shown as an age. Columns that are not listed appear only in JSON and on
    the page of one row.
    """

    name: str
    title: str
    title_ru: str
    kind: Kind = "text"
    _: KW_ONLY
    help: str = ""
    is_listed: bool = True
    is_sortable: bool = False
    # The index that orders rows by it; such a column is sortable, and a list whose key has one may
    # be of any length.
    index: str = ""
    is_nullable: bool = True
    # Deprecated; the column that has the same value under its current name.
    replaced_by: str = ""
    # Shown for null in a table of the command line, by default a dash.
    null: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that a caller may set, combined by AND.

    Without `columns` it compares the column of the same name. `choices` are the valid
    values; a mapping gives the values of the column for each, such as `open` for several states.
    `offered` is a query of the values that the console offers. With `is_search` it finds a part of
    any of the columns, ignoring case. `default` is used if the caller passes no value. `is_scan` is
    for a condition that no index serves, so that rows are read to find those that match.
    """

    name: str
    title: str
    title_ru: str
    help: str = ""
    columns: tuple[str, ...] = ()
    choices: Sequence[str] | Mapping[str, Sequence[str]] = ()
    offered: LiteralString | None = None
    is_search: bool = False
    is_scan: bool = False
    # The resource whose rows it refers to: offered in the console, checked by commands.
    of: Resource | None = None
    condition: LiteralString | None = None
    is_flag: bool = False
    # Whether the console has a field for it although there is a search.
    is_typed: bool = False
    default: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in order, and the cursor of the next page; None on the last one.

    `is_partial` if a search has stopped before the page was full.
    """

    rows: list[Row]
    cursor: str | None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """The rows of a page and their order; see `Resource.page`."""

    filters: Mapping[str, Any]
    sort: str
    is_descending: bool
    after: str | None
    limit: int
    when: Mapping[str, Collection[Any]]


@dataclass(frozen=True, slots=True)
class Journey:
    """How rows of a resource become steps of a journey, see `postroad.operate.journey`.

    Users search for the values of `keys`; those of `links` also connect rows of all resources. The
    others name the columns of the step. `next` describes what follows a state, in English and
    Russian. `find` reads the rows if they are not in one table.
    """

    keys: tuple[str, ...]
    links: tuple[str, ...]
    at: str
    _: KW_ONLY
    until: str = ""
    holder: str = ""
    place: str = ""
    attempts: str = ""
    error: str = "error"
    next: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    find: Callable[[AsyncConnection[Any], Sequence[str]], Awaitable[list[Row]]] | None = None


class Source(Protocol):
    """Reads pages of a list that is not in one table."""

    async def page(self, resource: Resource, place: Any, query: Query) -> Page:
        """Read a page; `place` is the object that the caller passed as the connection."""


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A list for operators, such as `exchange.messages`.

    `source` is a view or another expression for `from`, or an object that reads pages. `key` is
    unique and not null and orders the list; `identity` names a row in commands and addresses,
    `label` is the column by which users recognise it. `detail` reads one row with the lists of rows
    that belong to it, as further fields; None if there is no such row. `prepare` is a statement to
    run before rows are read.
    """

    name: str
    noun: str
    source: LiteralString | Source
    summary: str
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...] = ()
    _: KW_ONLY
    key: str = "id"
    identity: str = ""
    label: str = ""
    prepare: LiteralString | None = None
    is_descending: bool = True
    example: str = ""
    # Advice for an empty list.
    advice: str = ""
    detail: Callable[[AsyncConnection[Any], str], Awaitable[Row | None]] | None = None
    # The columns of the lists of rows in the detail, by their names.
    parts: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    missing: type[PostroadError] = RowNotFound
    # The part of its rows in the search over all components.
    journey: Journey | None = None

    @property
    def plural(self) -> str:
        """Its name within the component."""
        return self.name.partition(".")[2]

    @property
    def component(self) -> str:
        """The component that the resource belongs to."""
        return self.name.partition(".")[0]

    @property
    def row_name(self) -> str:
        """The column that names a row."""
        return self.identity or self.key

    @property
    def label_name(self) -> str:
        """The column by which people recognise a row."""
        return self.label or self.row_name

    @property
    def sort_keys(self) -> list[str]:
        """The columns by which it can be sorted, the default first."""
        others = [one for one in self.columns if one.is_sortable or one.index]
        return [self.key, *(one.name for one in others if one.name != self.key)]

    @property
    def listed(self) -> tuple[Column, ...]:
        """The columns of a table."""
        return tuple(column for column in self.columns if column.is_listed)

    def column(self, name: str) -> Column:
        """Return a column by name. Raises FilterInvalid."""
        for column in self.columns:
            if column.name == name:
                return column
        raise FilterInvalid(f"{self.name} has no column {name}")

    async def page(
        self,
        connection: AsyncConnection[Any],
        filters: Mapping[str, Any] | None = None,
        *,
        sort: str | None = None,
        is_descending: bool | None = None,
        after: str | None = None,
        limit: int = LIMIT_DEFAULT,
        when: Mapping[str, Collection[Any]] | None = None,
    ) -> Page:
        """Read one page. Read-only. Raises FilterInvalid, CursorInvalid.

        `when` has further values of columns that rows must have, such as those of an action.
        """
        order = sort or self.key
        if order not in self.sort_keys:
            raise FilterInvalid(
                f"{self.name} cannot be sorted by {sort}", hint=f"use: {', '.join(self.sort_keys)}"
            )
        if is_descending is None:
            is_descending = self.is_descending if order == self.key else False
        if not isinstance(self.source, str):
            given = self.given(filters or {})
            query = Query(given, order, is_descending, after, limit, when or {})
            return await self.source.page(self, connection, query)
        conditions, values = self._conditions(filters or {}, when, is_searched=False)
        if after is not None:
            condition, start = self._start(order, is_descending, after)
            conditions.append(condition)
            values += start
        searched, wanted = self._conditions(filters or {}, {}, is_searched=True)
        parts = {
            "columns": sql.SQL(", ").join(_name(column.name) for column in self.columns),
            "key": _name(self.key),
            "source": sql.SQL(self.source),
            "where": _where(conditions),
            "order": self._order(order, is_descending),
            "search": sql.SQL(" and ").join(searched),
        }
        if not searched:
            text = sql.SQL("select {columns} from {source} r{where} order by {order} limit %s")
            rows = await self._rows(connection, text.format(**parts), [*values, limit + 1])
        else:
            # The search reads only keys, because other columns may be long.
            text = sql.SQL(
                "select {columns}, f._is_match, f._nth from (select * from (select {key} as _key,"
                " {search} as _is_match, row_number() over (order by {order}) as _nth"
                " from (select r.* from {source} r{where} order by {order} limit %s) r) f"
                " where _is_match or _nth = %s order by _nth limit %s) f"
                " join {source} r on {key} = f._key order by f._nth"
            )
            values = [*wanted, *values, MAX_SEARCHED, MAX_SEARCHED, limit + 1]
            rows = await self._rows(connection, text.format(**parts), values)
            last = rows[-1] if rows else {"_nth": 0}
            names = [column.name for column in self.columns]
            rows = [{name: row[name] for name in names} for row in rows if row["_is_match"]]
            if len(rows) <= limit and last["_nth"] == MAX_SEARCHED:
                return Page(rows, self.cursor(last, order), is_partial=True)
        more = rows[limit - 1] if len(rows) > limit else None
        cursor = None if more is None else self.cursor(more, order)
        return Page(rows[:limit], cursor)

    async def one(self, connection: AsyncConnection[Any], identity: Any) -> Row:
        """Read one row by its identity, with its detail. Read-only. Raises `missing`."""
        if self.detail is not None:
            row = await self.detail(connection, identity)
        else:
            row = await self._one(connection, identity)
        if row is None:
            listed = self.example.partition(" --")[0]
            hint = f"list them: {listed}" if listed else None
            raise self.missing(f"there is no {self.noun} {identity}", hint=hint)
        return row

    async def check_named(
        self, connection: AsyncConnection[Any], filters: Mapping[str, Any]
    ) -> None:
        """Check that rows of other resources that filters name exist. Raises their `missing`."""
        for one in self.filters:
            if one.of is not None and filters.get(one.name):
                await one.of.one(connection, filters[one.name])

    async def _one(self, connection: AsyncConnection[Any], identity: Any) -> Row | None:
        if self.column(self.row_name).kind in NUMBERS:
            identity = _number(self.row_name, identity)
        if not isinstance(self.source, str):
            found = await self.page(connection, when={self.row_name: (identity,)}, limit=1)
            return found.rows[0] if found.rows else None
        text = sql.SQL("select {columns} from {source} r where {identity} = %s").format(
            columns=sql.SQL(", ").join(_name(column.name) for column in self.columns),
            source=sql.SQL(self.source),
            identity=_name(self.row_name),
        )
        rows = await self._rows(connection, text, [identity])
        return rows[0] if rows else None

    async def count(
        self,
        connection: AsyncConnection[Any],
        filters: Mapping[str, Any],
        when: Mapping[str, Collection[Any]] | None = None,
    ) -> int:
        """Count the rows that match, up to `MAX_COUNTED`; `when` is that of `page`. Read-only."""
        if not isinstance(self.source, str):
            count = 0
            async for rows in self.matching(connection, filters, when):
                if (count := count + len(rows)) >= MAX_COUNTED:
                    break
            return count
        conditions, values = self._conditions(filters, when)
        text = sql.SQL(
            "select count(*) as count from (select from {source} r{where} limit %s) c"
        ).format(source=sql.SQL(self.source), where=_where(conditions))
        return int((await self._rows(connection, text, [*values, MAX_COUNTED]))[0]["count"])

    async def matching(
        self,
        connection: AsyncConnection[Any],
        filters: Mapping[str, Any],
        when: Mapping[str, Collection[Any]] | None = None,
    ) -> AsyncIterator[list[Row]]:
        """Yield all rows that match, in batches in order of the key."""
        after = None
        while True:
            page = await self.page(connection, filters, after=after, limit=MAX_KEYS, when=when)
            if page.rows:
                yield page.rows
            if (after := page.cursor) is None:
                return

    async def all(
        self, connection: AsyncConnection[Any], filters: Mapping[str, Any] | None = None
    ) -> list[Row]:
        """Read all rows that match; for lists that are short. Read-only."""
        return [row async for rows in self.matching(connection, filters or {}) for row in rows]

    async def offered(self, connection: AsyncConnection[Any], one: Filter) -> list[str]:
        """Read the values that the console offers for a filter. Read-only."""
        if one.of is not None:
            name = one.of.row_name
            page = await one.of.page(connection, is_descending=False, limit=MAX_OFFERED)
            return [str(row[name]) for row in page.rows]
        if one.offered is None:
            return list(one.choices)
        cursor = await connection.execute(one.offered)
        return [str(row[0]) for row in await cursor.fetchall()]

    def given(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the filters that have a value, with defaults. Raises FilterInvalid."""
        known = {one.name: one for one in self.filters}
        given = {one.name: one.default for one in self.filters if one.default}
        given |= {name: v for name, v in filters.items() if v not in (None, "", False)}
        for name, value in given.items():
            if name not in known:
                raise FilterInvalid(
                    f"{self.name} has no filter {name}", hint=f"use: {', '.join(known)}"
                )
            if not _is_text(str(value)):
                raise FilterInvalid(f"{name} has characters that no text of the list has")
            if (choices := known[name].choices) and value not in choices:
                raise FilterInvalid(
                    f"{value} is not a {name} of {self.name}", hint=f"one of: {', '.join(choices)}"
                )
        return given

    def wanted(self, one: Filter, value: Any) -> list[Any]:
        """Return the values of the column that a filter accepts. Raises FilterInvalid."""
        wanted = list(one.choices[value]) if isinstance(one.choices, Mapping) else [value]
        if self.column((one.columns or (one.name,))[0]).kind in NUMBERS:
            return [_number(one.name, each) for each in wanted]
        return wanted

    def _conditions(
        self,
        filters: Mapping[str, Any],
        when: Mapping[str, Collection[Any]] | None,
        *,
        is_searched: bool | None = None,
    ) -> tuple[list[sql.Composable], list[Any]]:
        """Return conditions: all, those that require reading rows, or only the others."""
        given = self.given(filters)
        conditions: list[sql.Composable] = []
        values: list[Any] = []
        is_long = any(one.name == self.key and one.index for one in self.columns)
        for one in self.filters:
            is_read = is_long and (one.is_search or one.is_scan)
            if one.name in given and is_searched in (None, is_read):
                condition, wanted = self._condition(one, given[one.name])
                conditions.append(condition)
                values += wanted
        for name, allowed in (when or {}).items():
            filled = [value for value in allowed if value is not None]
            text = "({0} = any (%s) or {0} is null)" if None in allowed else "{0} = any (%s)"
            conditions.append(sql.SQL(text if filled else "{0} is null").format(_name(name)))
            values += [filled] if filled else []
        return conditions, values

    def _condition(self, one: Filter, value: Any) -> tuple[sql.Composable, list[Any]]:
        if one.condition is not None:
            return sql.SQL(one.condition), [] if one.is_flag else [value]
        columns = one.columns or (one.name,)
        if one.is_search:
            texts = sql.SQL(", ").join(map(_name, columns))
            condition = sql.SQL("strpos(lower(concat_ws(' ', {})), lower(%s)) > 0").format(texts)
            return condition, [str(value)]
        wanted = self.wanted(one, value)
        if len(wanted) == 1:
            # Equality keeps the order of an index on (column, key); `any` does not.
            return sql.SQL("{} = %s").format(_name(columns[0])), wanted
        return sql.SQL("{} = any (%s)").format(_name(columns[0])), [wanted]

    def _order(self, order: str, is_descending: bool) -> sql.Composable:
        way = sql.SQL(" desc" if is_descending else "")
        if order == self.key:
            return _name(self.key) + way
        last = sql.SQL(" nulls last" if self.column(order).is_nullable else "")
        return _name(order) + way + last + sql.SQL(", ") + _name(self.key) + way

    def _start(
        self, order: str, is_descending: bool, after: str
    ) -> tuple[sql.Composable, list[Any]]:
        """Return the condition of the rows after a cursor; an index on the order starts there."""
        then = sql.SQL("<" if is_descending else ">")
        names = {"order": _name(order), "key": _name(self.key), "then": then}
        if order == self.key:
            return sql.SQL("{key} {then} %s").format(**names), self.start(order, after)
        value, key = self.start(order, after)
        if value is None:
            text = sql.SQL("({order} is null and {key} {then} %s)")
            return text.format(**names), [key]
        if not self.column(order).is_nullable:
            return sql.SQL("({order}, {key}) {then} (%s, %s)").format(**names), [value, key]
        text = sql.SQL("({order} is null or ({order}, {key}) {then} (%s, %s))")
        return text.format(**names), [value, key]

    def start(self, order: str, after: str) -> list[Any]:
        """Return the key of a cursor, after the value of the sort column if that is another one."""
        if order == self.key:
            return [self._value(order, decode_cursor(after, object)[0])]
        value, key = decode_cursor(after, object, object)
        value = None if value is None else self._value(order, value)
        return [value, self._value(self.key, key)]

    def _value(self, name: str, given: Any) -> Any:
        """Check a part of a cursor, which comes from outside, against its column's kind."""
        try:
            parse: Callable[[Any], Any] = _PARSERS.get(self.column(name).kind, _text)
            return parse(given)
        except (TypeError, ValueError, OverflowError, PostroadError) as wrong:
            raise CursorInvalid(
                "the cursor belongs to another list", hint="start without a cursor"
            ) from wrong

    def cursor(self, row: Row, order: str) -> str:
        """Return the cursor of the page after a row."""
        parts = [row[self.key]] if order == self.key else [row[order], row[self.key]]
        return encode_cursor(*map(_plain, parts))

    async def _rows(
        self, connection: AsyncConnection[Any], text: sql.Composed, values: Sequence[Any]
    ) -> list[Row]:
        if self.prepare is not None:
            await connection.execute(self.prepare)
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(text, values)
            return await cursor.fetchall()


def _plain(part: Any) -> Any:
    if isinstance(part, timedelta):
        return part.total_seconds()
    return part.isoformat() if isinstance(part, datetime) else part


def _name(name: str) -> sql.Composable:
    return sql.SQL("r.") + sql.Identifier(name)


def _where(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL("")


def _is_text(value: str) -> bool:
    """Return whether PostgreSQL can store a text: it has no NUL and no lone surrogates."""
    return re.search("[\0\ud800-\udfff]", value) is None


def _number(name: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise FilterInvalid(f"{name} must be a number") from None
    if abs(number) >= 2**63:
        raise FilterInvalid(f"{name} is out of range")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not _is_text(value):
        raise ValueError("this is not a text")
    return value


# Functions that read a part of a cursor, by the kind of its column; other kinds are texts.
_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("moment", "since"), datetime.fromisoformat),
    **dict.fromkeys(NUMBERS, partial(_number, "cursor")),
    "rate": float,
    "duration": lambda seconds: timedelta(seconds=float(seconds)),
}
