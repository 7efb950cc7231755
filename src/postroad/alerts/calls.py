"""The calls of schema alerts, and functions that run them, blocking and async.

A call runs in the transaction of the connection; nothing here commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.rows import DictRow, dict_row

from postroad.alerts.errors import translate

Statement = LiteralString

RAISE: Statement = (
    "select alerts.raise(p_key => %s, p_room => %s, p_severity => %s, p_title => %s, p_body => %s)"
)
CLEAR: Statement = "select alerts.clear(p_key => %s)"
# The lock of folding: reports are removed by one process at a time, or a clear could overtake its
# raise.
TRY_LOCK_REPORTS: Statement = "select pg_try_advisory_xact_lock(hashtextextended('alerts.fold', 0))"
# A relay belongs to the owner of the schema.
REPORTS: Statement = (
    "select id, is_raise, key, room, severity, title, body from alerts.report order by id limit %s"
)
FORGET_REPORTS: Statement = "delete from alerts.report where id = any (%s)"
ACK: Statement = "select alerts.ack(p_key => %s, p_by => %s) as count"
SET_CHANNELS: Statement = (
    "select alerts.set_channels(p_names => %s::text[], p_kinds => %s::text[],"
    " p_severities => %s::text[])"
)
COMPOSE: Statement = (
    "select alerts.compose(p_channel => %s, p_group_window => %s, p_quiet_window => %s,"
    " p_digest_every => %s, p_is_heartbeat => %s) as notice"
)
TEST: Statement = "select alerts.test(p_channel => %s) as notice"
TAKE: Statement = (
    "select * from alerts.take(p_sender => %s, p_channels => %s::text[], p_lease => %s,"
    " p_backoff_max => %s, p_notice => %s::bigint)"
)
SENT: Statement = "select alerts.sent(p_notice => %s)"
FAILED: Statement = (
    "select alerts.failed(p_notice => %s, p_token => %s, p_error => %s, p_backoff => %s,"
    " p_backoff_max => %s, p_give_up_after => %s) as state"
)
NOTICE: Statement = "select state, error from alerts.notice_list where id = %s"
RETRY: Statement = "select alerts.retry(p_notice => %s) as is_tried"
FOLD: Statement = "select alerts.fold() as count"
PURGE: Statement = "select alerts.purge(p_keep => %s) as count"

Parameter = str | int | bool | None | timedelta | Sequence[str]


def run(
    connection: Connection[Any], statement: Statement, parameters: Sequence[Parameter]
) -> list[DictRow]:
    """Run a call; raise errors of the component."""
    cursor: Cursor[DictRow] = Cursor(connection, row_factory=dict_row)
    try:
        return cursor.execute(statement, parameters).fetchall()
    except psycopg.Error as error:
        if (translated := translate(error)) is None:
            raise
        raise translated from error


async def run_async(
    connection: AsyncConnection[Any], statement: Statement, parameters: Sequence[Parameter]
) -> list[DictRow]:
    """Run a call; raise errors of the component."""
    cursor: AsyncCursor[DictRow] = AsyncCursor(connection, row_factory=dict_row)
    try:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()
    except psycopg.Error as error:
        if (translated := translate(error)) is None:
            raise
        raise translated from error
