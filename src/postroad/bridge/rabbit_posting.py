"""Posting what came from a broker: what can be posted is, and what cannot is kept in `refused`.

Most of what cannot is told by reading it. Where the target refuses in a way that nobody has
foreseen, the batch goes one by one, and the message that fails alone is kept with the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aio_pika.abc import AbstractIncomingMessage
from psycopg import AsyncConnection, DataError
from psycopg.errors import ProgramLimitExceeded

from postroad.bridge import calls
from postroad.bridge.calls import ParsedBatch
from postroad.bridge.failures import sentence
from postroad.bridge.rabbit_limits import readable
from postroad.bridge.rabbit_mapping import Arrived, arrive
from postroad.bus.payload import Payload

__all__ = ["Posting"]

# What says that a message cannot be posted, ever, and that nobody has foreseen.
UNFORESEEN = (DataError, ProgramLimitExceeded, ValueError, TypeError, OverflowError)


@dataclass(slots=True)
class Posting:
    """Posts for one inlet, and counts."""

    bridge: str
    label: str
    delivered: int = 0
    dropped: int = 0
    refused: int = 0
    # Of a stream: the offset up to which everything has been posted.
    position: int | None = None

    async def post(
        self,
        target: AsyncConnection[Any],
        payload: Payload,
        messages: list[AbstractIncomingMessage],
    ) -> None:
        """Post messages, each once; when this returns they are durable, or kept as refused."""
        try:
            await self._together(target, payload, messages)
        except UNFORESEEN:
            for message in messages:
                try:
                    await self._together(target, payload, [message])
                except UNFORESEEN as wrong:
                    await self._together(target, payload, [message], problem=sentence(wrong))

    async def _together(
        self,
        target: AsyncConnection[Any],
        payload: Payload,
        messages: list[AbstractIncomingMessage],
        *,
        problem: str | None = None,
    ) -> None:
        """Post in one transaction; with a problem, keep all of it instead."""
        now = datetime.now(UTC)
        arrived = [arrive(message, payload, now) for message in messages]
        problems = {
            place: each.problem or problem or ""
            for place, each in enumerate(arrived)
            if each.problem or problem
        }
        good = [place for place in range(len(arrived)) if place not in problems]
        offset = messages[-1].headers.get("x-stream-offset")
        position = offset if isinstance(offset, int) else None
        async with target.transaction():
            delivery = await calls.receive(
                target,
                self.bridge,
                self.label,
                _batch([arrived[place] for place in good]),
                position,
            )
            problems |= {
                good[place - 1]: error
                for place, error in zip(delivery.refused, delivery.errors, strict=True)
            }
            for place, why in problems.items():
                await calls.refuse(
                    target,
                    self.bridge,
                    self.label,
                    readable(messages[place].message_id or "") or None,
                    readable(why),
                    readable(arrived[place].headers),
                    messages[place].body,
                )
        self.position = position
        self.delivered += delivery.posted
        self.dropped += delivery.dropped
        self.refused += len(problems)


def _batch(arrived: list[Arrived]) -> ParsedBatch:
    return ParsedBatch(
        number=None,
        messages=len(arrived),
        looped=0,
        iids=[],
        ids=[each.id for each in arrived],
        data=[each.data for each in arrived],
        headers=[each.headers for each in arrived],
        properties=[each.properties for each in arrived],
        expires=[each.expires for each in arrived],
        delayed=[each.delayed for each in arrived],
    )
