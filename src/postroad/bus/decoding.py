"""Results that the client cannot decode: one message must not stop a consumer.

A result is decoded as a whole. If that fails it is decoded row by row: a time that Python cannot
represent is replaced by the nearest one that it can, and a row with any other invalid value is
reported as undecodable, so that its message can be dead-lettered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import AsyncCursor, Cursor
from psycopg.adapt import AdaptersMap, Buffer, Transformer
from psycopg.types.datetime import TimestamptzLoader

FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)

# Raised by the driver's loaders for values that they cannot represent.
NOT_DECODED = (psycopg.DataError, ValueError, RecursionError, OverflowError)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be decoded: its columns as the server's text, and the error."""

    texts: Mapping[str, str | None]
    error: Exception

    @property
    def iid(self) -> str:
        """The iid of the message in this row."""
        return self.texts.get("iid") or ""

    @property
    def token(self) -> int:
        """The token of a leased message."""
        return int(self.texts.get("token") or 0)

    @property
    def reason(self) -> str:
        """The error that is stored with the dead message."""
        return f"the client cannot decode the message: {type(self.error).__name__}: {self.error}"


class Undecodable(psycopg.DataError):
    """Some rows of a result cannot be read; the others are in `rows`."""

    def __init__(self, rows: list[tuple[Any, ...]], bad: list[BadRow]) -> None:
        super().__init__(f"{len(bad)} rows cannot be decoded: {bad[0].reason}")
        self.rows = rows
        self.bad = bad


class _NearestTimestamptzLoader(TimestamptzLoader):
    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            text = bytes(data)
            is_past = text.startswith(b"-") or text.endswith(b"BC")
            return FIRST_MOMENT if is_past else LAST_MOMENT


class _Context:
    """The adapters of a cursor, with the lenient adapter for times."""

    def __init__(self, cursor: Cursor[Any] | AsyncCursor[Any]) -> None:
        self.adapters = AdaptersMap(cursor.adapters)
        self.adapters.register_loader("timestamptz", _NearestTimestamptzLoader)
        self.connection = cursor.connection


def read_rows(cursor: Cursor[Any] | AsyncCursor[Any]) -> list[tuple[Any, ...]]:
    """Read the current result row by row. Raises Undecodable if some rows cannot be read."""
    result = cursor.pgresult
    assert result is not None  # noqa: S101 - there was a result to read
    transformer = Transformer(_Context(cursor))
    transformer.set_pgresult(result)
    names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
    rows, bad = [], []
    for number in range(result.ntuples):
        try:
            rows.append(transformer.load_row(number, tuple))
        except NOT_DECODED as error:
            values = [result.get_value(number, column) for column in range(result.nfields)]
            texts = [None if value is None else value.decode() for value in values]
            bad.append(BadRow(dict(zip(names, texts, strict=True)), error))
    if bad:
        raise Undecodable(rows, bad)
    return rows


def log_undecodable(logger: logging.Logger, bad: BadRow, facts: Mapping[str, Any]) -> None:
    """Log a message that is dead-lettered because it cannot be decoded; never its payload."""
    reason = type(bad.error).__name__
    logger.warning("message_undecodable", extra={**facts, "iid": bad.iid, "reason": reason})
