"""What operators of bridges can list and do; see `postroad.operate`.

Rows are read from the databases of all bridges: the place of these lists is `Addresses`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from postroad.bridge import operations, status
from postroad.bridge.addresses import Addresses
from postroad.bridge.errors import BridgeNotFound
from postroad.bridge.registry import load
from postroad.operate import Action, Column, Filter, Resource, Row
from postroad.operate.memory import Rows


def _read(found: Callable[[Addresses], Awaitable[list[Any]]]) -> Rows:
    async def read(addresses: Addresses) -> list[Row]:
        return [asdict(one) for one in await found(addresses)]

    return Rows(read)


_ENDS = (
    Column("name", "Bridge", "Мост"),
    Column("kind", "Kind", "Вид", "word", is_sortable=True),
    Column("source", "Source", "Источник", is_sortable=True),
    Column("queue", "Queue", "Очередь", is_sortable=True),
    Column("target", "Target", "Получатель", is_sortable=True),
    Column("queue_at_target", "Queue at the target", "Очередь получателя", is_sortable=True),
)

BRIDGES = Resource(
    "bridge.bridges", "bridge", _read(load), "List the bridges.",
    (*_ENDS, Column("selector", "Selector", "Селектор", "code")), key="name", is_descending=False,
    example="postroad bridge list", advice="add one with: postroad bridge add",
    missing=BridgeNotFound,
)  # fmt: skip

STATUS = Resource(
    "bridge.bridges", "bridge", _read(status.status),
    "Show state, lag and rate of one bridge or of all.",
    (
        _ENDS[0],
        Column("state", "State", "Состояние", "state", is_sortable=True),
        *(Column(one.name, one.title, one.title_ru, is_listed=False) for one in _ENDS[2:]),
        Column("lag", "Waiting", "Отставание", "number", is_sortable=True),
        Column("lag_age", "Oldest", "Старейшее", "duration", is_sortable=True),
        Column("per_second", "Messages/s", "Сообщений/с", "rate", is_sortable=True),
        Column("carried", "Carried", "Передано", "number", is_sortable=True,
               help="In the last hour."),
        Column("dropped", "Dropped", "Пропущено", "number", is_sortable=True,
               help="In the last hour: the target has had them."),
        Column("refused", "Refused", "Отклонено", "alarm", is_sortable=True),
        Column("last_at", "Last batch", "Последний пакет", "moment", is_listed=False,
               is_sortable=True),
        Column("problem", "Problem", "Проблема"),
    ),
    (
        Filter("name", "Bridge", "Мост", "Only this bridge.", of=BRIDGES),
        Filter("search", "Search", "Поиск", "A part of the name, ends or problem.",
               ("name", "source", "queue", "target", "queue_at_target", "problem"),
               is_search=True),
    ),
    key="name", is_descending=False, example="postroad bridge status orders --json",
    advice="add one with: postroad bridge add", missing=BridgeNotFound,
)  # fmt: skip

SHARDS = Resource(
    "bridge.shards", "shard", Rows(status.shard_statuses),
    "List the shards of one logical queue or of all, and how many messages wait in each.",
    (
        Column("id", "Shard", "Шард", is_listed=False),
        Column("logical", "Queue", "Очередь", is_sortable=True),
        Column("name", "Database", "База", is_sortable=True),
        Column("weight", "Weight", "Вес", "number", is_sortable=True),
        Column("depth", "Depth", "Глубина", "number", is_sortable=True),
        Column("posted_per_second", "Posted/s", "Отправлено/с", "rate", is_sortable=True),
        Column("problem", "Problem", "Проблема"),
    ),
    (Filter("queue", "Queue", "Очередь", "Only of this logical queue.", ("logical",)),),
    is_descending=False, example="postroad bridge shards list orders",
    advice="configure them: bridge.shards",
)  # fmt: skip


def _action(
    verb: str, state: operations.State, summary: str, title: str, title_ru: str, *states: str
) -> Action:
    async def call(addresses: Addresses, name: str, *, is_dry_run: bool = False) -> Row:
        if is_dry_run:
            before = (await status.status(addresses, name))[0].state
        else:
            before = await operations.set_state(addresses, name, state)
        return {"bridge": name, "state": state, "was": before}

    call.__doc__ = summary
    return Action(
        call, "bridge {bridge} {be} {state} (was {was})", STATUS, title, title_ru, name=verb,
        place="addresses", needs=("is_dry_run",), when={"state": states},
    )  # fmt: skip


REMOVE = Action(
    operations.remove, "bridge {bridge} {would}removed", STATUS, place="addresses",
    needs=("is_dry_run",), loss="messages_lost",
    question="{messages_lost} messages were not carried yet. Continue?",
)  # fmt: skip
PAUSE = _action(
    "pause", "paused",
    "Let a bridge take nothing until it is resumed; its messages wait at the source.\n\n"
    "Example: postroad bridge pause orders",
    "Pause", "Приостановить", "running",
)  # fmt: skip
DRAIN = _action(
    "drain", "draining",
    "Let a bridge carry what waits, and then take nothing more.\n\n"
    "Example: postroad bridge drain orders --wait",
    "Drain", "Опустошить", "running",
)  # fmt: skip
RESUME = _action(
    "resume", "running",
    "Let a bridge that was paused or drained continue.\n\nExample: postroad bridge resume orders",
    "Resume", "Продолжить", *("paused", "draining", "drained", "unknown"),
)  # fmt: skip
