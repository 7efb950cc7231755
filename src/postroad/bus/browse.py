"""Pages of the messages of a queue, read without taking them.

A page is found by its position, so that reading the millionth message costs no more than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

from psycopg import AsyncConnection

from postroad.bus.call import Call, listed, named
from postroad.bus.client import AsyncBus
from postroad.bus.hstore import Hstore

State: TypeAlias = Literal["ready", "delayed", "waiting", "leased", "dead", "retained"]
STATES: tuple[State, ...] = get_args(State)
MAX_CHARACTERS_DEFAULT = 100_000


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A copy of a message in its state.

    `data` is the payload as text, truncated as requested; `size` is the size of the whole in bytes.
    """

    place_of: int
    is_match: bool
    iid: str
    added: datetime
    expires: datetime | None
    due_at: datetime | None
    attempts: int
    error: str | None
    headers: Hstore
    properties: Hstore
    data: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """Messages in order, and the position of the next page; None at the end."""

    messages: Sequence[BrowsedMessage]
    next_place: int | None


async def browse(
    bus: AsyncBus,
    queue: str,
    consumer: str = "default",
    state: State = "ready",
    *,
    place: int | None = None,
    is_descending: bool = False,
    amount: int = 50,
    search: str | None = None,
    max_characters: int = MAX_CHARACTERS_DEFAULT,
) -> Page:
    """Read a page of one consumer's copies in a state. Read-only.

    A search reads a limited number of messages: a page may have fewer matches than requested, or
    none, and still have a next page. Raises QueueNotFound, ConsumerNotFound, InvalidArgument.
    """
    # One more than requested shows whether there is a next page.
    given: dict[str, Any] = {"qname": queue, "cname": consumer, "state": state, "place": place}
    given |= {"is_descending": is_descending, "amt": amount + 1}
    given |= {"search": search, "max_characters": max_characters}
    source = named("browse", *given)
    call = listed(BrowsedMessage, source, *given.values(), queue=queue, consumer=consumer)
    found = await bus._run(call)
    matches = [message for message in found if message.is_match][: amount + 1]
    if len(matches) > amount:
        return Page(matches[:amount], matches[amount - 1].place_of)
    is_cut = bool(found) and not found[-1].is_match
    return Page(matches, found[-1].place_of if is_cut else None)


async def find(
    bus: AsyncBus, iid: str, max_characters: int = MAX_CHARACTERS_DEFAULT
) -> list[tuple[str, State, BrowsedMessage]]:
    """Find every copy of a message: consumer, state and the copy. Read-only.

    If all consumers have consumed it, the retained message is returned for the first of them.
    """
    queue, _, rest = iid.partition(".")
    number = rest.partition("@")[0]
    if not number.isdigit():
        return []
    found: list[tuple[str, State, BrowsedMessage]] = []
    # One without a selector first, because others may never have got the retained message.
    consumers = sorted(await bus.consumers(queue), key=lambda one: one.selector is not None)
    for state, consumer in product(STATES, consumers):
        if state == "retained" and found:
            break
        # The position of a ready message that was put back differs from its number.
        is_ready = state == "ready"
        page = await browse(
            bus,
            queue,
            consumer.consumer,
            state,
            place=None if is_ready else int(number) - 1,
            amount=1,
            search=iid if is_ready else None,
            max_characters=max_characters,
        )
        copies = [each for each in page.messages if each.iid == iid]
        found += [(consumer.consumer, state, each) for each in copies]
    return found


async def find_messages(
    connection: AsyncConnection[Any], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Find copies of messages by iid, business key, trace id or correlation. Read-only."""
    bus = AsyncBus(connection)
    call = Call("select iid, links from mbus.find(%s)", (list(texts),), lambda found: found)
    links: dict[str, list[str | None]] = {text: [] for text in texts if "@" in text}
    links |= dict(await bus._run(call))
    rows = []
    for iid, linked in links.items():
        for consumer, state, message in await find(bus, iid, 200):
            row = {**asdict(message), "id": f"{iid} {consumer}", "state": state}
            row["consumer"] = f"{iid.partition('.')[0]} → {consumer}"
            row["trace"] = str(message.headers.get("traceparent") or "")[3:35]
            row["correlation"] = message.headers.get("correlation")
            row["origin"] = linked[3] if linked else None
            rows.append(row)
    return rows
