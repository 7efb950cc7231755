"""Calls that redrive dead messages, unchanged or edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroad.bus import calls, parameters, rows
from postroad.bus import payload as payloads
from postroad.bus.call import Call, OfQueue, Procedure, sql
from postroad.bus.hstore import Hstore
from postroad.bus.parameters import queue_of
from postroad.bus.payload import Payload

if TYPE_CHECKING:
    from postroad.bus.runner import AsyncRunner


def redrive(queue: str, consumer: str | None = None, iid: str | None = None) -> Procedure[int]:
    """Make dead messages ready again: of a queue, of one consumer, or one. Returns their number.

    Works in batches of 1,000, each in its own transaction unless the bus has the caller's
    connection. Expired messages stay in the dmq.
    """

    async def work(runner: AsyncRunner) -> int:
        chosen = {"qname": queue, "cname": consumer, "iid": iid}
        died_before, total = await runner.run(calls.now()), 0
        batch = sql(int, "redrive", **chosen, died_before=died_before)
        while count := await runner.run(batch):
            total += count
        return total

    return Procedure(work)


def redrive_edited(
    iid: str,
    data: object = None,
    properties: Hstore | None = None,
    consumer: str | None = None,
    edited_by: str | None = None,
) -> OfQueue[int]:
    """Redrive a dead message with other data or properties; None leaves them unchanged.

    It keeps its iid, and its original is kept in mbus.dead_originals. Returns the number of
    redriven copies, of all consumers or of one: 0 if it is not dead or has expired. Raises
    QueueNotFound, ConsumerNotFound, WrongPayload, ForeignIid.
    """

    def build(payload: Payload) -> Call[int]:
        text = None if data is None else payloads.text(payload, data)
        return redrive_with_text(iid, text, properties, consumer, edited_by)

    return OfQueue(queue_of(iid), build)


def redrive_with_text(
    iid: str,
    data: str | None,
    properties: Hstore | None,
    consumer: str | None,
    edited_by: str | None,
) -> Call[int]:
    """Build `redrive_edited` with the text of the payload, as mbus.dead shows it."""
    text = (
        "select mbus.redrive_edited(iid => %s, data => %s, properties => %s, cname => %s,"
        " edited_by => %s)"
    )
    given = (iid, data, parameters.hstore("properties", properties), consumer, edited_by)
    queue = queue_of(iid)
    return Call(text, given, rows.value, queue, consumer, wakes=(queue,))
