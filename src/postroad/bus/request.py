"""Request and reply as calls: how requests are posted and answers are read. Pure.

```
request ──post with reply_to──> queue ──handler returns──> answer ──> requester's reply queue
   └── no answer in time: RequestTimedOut; the request expires, a late answer is dropped
```

A reply queue belongs to a session, so a requester keeps its own connection for the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from postroad.bus import parameters, rows
from postroad.bus import payload as payloads
from postroad.bus.call import Call
from postroad.bus.errors import InvalidArgument, RequestTimedOut
from postroad.bus.hstore import Hstore, array_literal
from postroad.bus.message import Message
from postroad.bus.parameters import function
from postroad.bus.payload import Payload
from postroad.bus.rows import Row

REQUEST_TIMEOUT_DEFAULT = timedelta(seconds=5)
TEMPORARY_PREFIX = "temp."

# For the connections of requesters. A server crash ends their sessions and their waits, so
# waiting for the disk would gain nothing. A received answer is durable: the commit of the answer
# flushed it, and the request before it.
PREPARE_SESSION = "set synchronous_commit = off"

_NAMED_IN_REQUEST = ("reply_to", "correlation", "reply_by")


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request.

    Attributes:
        correlation: the iid of the request.
        iid: the iid of the answer.
        added: when it was sent.
        headers: those of any message, and those that the handler added.
        properties: those that the handler added.
        data: the payload, of the type that the handler chose.
    """

    correlation: str
    iid: str
    added: datetime
    headers: Hstore
    properties: Hstore
    data: Any


def asks(message: Message) -> bool:
    """Check whether a message was posted with `request`."""
    reply_to = message.headers.get("reply_to")
    return reply_to is not None and reply_to.startswith(TEMPORARY_PREFIX)


@dataclass(frozen=True, slots=True)
class Question:
    """A request; raises InvalidArgument unless its timeout is positive."""

    queue: str
    payload: Payload
    data: object
    headers: Hstore | None
    properties: Hstore | None
    timeout: timedelta

    def __post_init__(self) -> None:
        if self.timeout <= timedelta(0):
            reason = f"invalid timeout: {self.timeout}"
            raise InvalidArgument(reason, hint="pass a positive timedelta")

    def timed_out(self, iid: str | None) -> RequestTimedOut:
        """Create the error of a request without an answer."""
        return RequestTimedOut(
            f"no answer from queue {self.queue} within {self.timeout.total_seconds():g} s",
            hint="check that a worker runs for it; try again, or allow more time",
            queue=self.queue,
            iid=iid,
        )


def ask_many(
    questions: Sequence[Question], reply_to: str, *, notify: bool = False
) -> Call[list[str]]:
    """Build the call of mbus.postn_<queue> that requests answers, with the server's clock.

    All questions have the queue and the timeout of the first. With `notify` the same commit
    notifies the workers. Requesters commit asynchronously, so the lock that serializes
    notifications is held briefly.
    """
    queue, payload, timeout = questions[0].queue, questions[0].payload, questions[0].timeout
    headers = [{**(each.headers or {}), "reply_to": reply_to} for each in questions]
    return Call(
        f"select {function('postn', queue)}(data => %s, headers => %s, properties => %s,"
        f" expires => mbus.now() + %s){', mbus.notify(%s::text[])' if notify else ''}",
        (
            payloads.array(payload, [each.data for each in questions]),
            array_literal(parameters.hstore("headers", each) for each in headers),
            array_literal(parameters.hstore("properties", each.properties) for each in questions),
            timeout,
            *(([queue],) if notify else ()),
        ),
        rows.values,
        queue,
    )


def reply_many(
    requests: Iterable[Message],
    payload: Payload,
    data: Sequence[object],
    headers: Hstore | None = None,
    properties: Hstore | None = None,
) -> Call[list[str | None]]:
    """Build the call of mbus.replyn_<payload>; it returns None for each dropped answer."""
    asked = [
        {name: each.headers[name] for name in _NAMED_IN_REQUEST if name in each.headers}
        for each in requests
    ]
    return Call(
        f"select mbus.replyn_{payload}"
        "(requests => %s, data => %s, headers => %s, properties => %s)",
        (
            array_literal(parameters.hstore("headers", each) for each in asked),
            payloads.array(payload, data),
            parameters.hstore("headers", headers),
            parameters.hstore("properties", properties),
        ),
        rows.values,
    )


def read_replies(found: list[Row]) -> list[Reply]:
    """Read the rows of `REPLIES`."""
    mapping = payloads.mapping
    replies = []
    for correlation, iid, added, headers, properties, payload, *columns in found:
        data = next((each for each in columns if each is not None), None)
        value = mapping(data) if payload == "hstore" else data
        replies.append(Reply(correlation, iid, added, mapping(headers), mapping(properties), value))
    return replies


REPLY_QUEUE: Call[str] = Call("select mbus.reply_queue()", (), rows.value)
# All answers that have arrived, without waiting for more.
REPLIES = Call(
    "select correlation, iid, added, headers, properties, payload, data_hstore, data_jsonb,"
    " data_text, data_bytea from mbus.replies(amt => 1000, wait => '0')",
    (),
    read_replies,
)
