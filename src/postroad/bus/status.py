"""Read-only facts about queues and consumers: the rows of the views of schema mbus."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from postroad.bus.hstore import Hstore

# Messages that are not ready are counted up to this number; see mbus._set_aside.
COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it was created (view mbus.queues)."""

    queue: str
    payload: str
    ncons: int
    consumers: list[str]
    mode: str
    segments: int
    is_roles_security_model: bool
    created_at: datetime
    retain: timedelta | None
    retain_size: int | None
    retained: int
    retained_bytes: int
    retained_since: datetime | None
    track: str | None
    schema: Any


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a queue's history; `data` is the payload as text, `id` the place of the copy."""

    id: int
    iid: str
    added: datetime
    expires: datetime | None
    attempts: int
    headers: Hstore
    properties: Hstore
    data: str | None


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay (view mbus.replays): waiting, running, stopped with an error, or finished.

    `progress` is the fraction of the stored messages that was read, between 0 and 1.
    """

    id: int
    queue: str
    consumer: str
    state: str
    is_start: bool
    since: datetime | None
    until: datetime | None
    selector: str | None
    rate: int | None
    messages: int
    progress: float
    started_at: datetime
    started_by: str
    finished_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Consumer:
    """A durable subscriber, its settings and limits, and who has paused it (view mbus.consumers).

    `limited_by` is the limit that keeps it from taking now: rate or concurrency.
    """

    queue: str
    consumer: str
    selector: str | None
    max_attempts: int
    backoff: timedelta
    backoff_max: timedelta
    created_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    is_queue_paused: bool
    contract: str
    rate: float | None
    burst: int | None
    concurrency: int | None
    key: str | None
    key_rate: float | None
    key_concurrency: int | None
    limited_by: str | None


@dataclass(frozen=True, slots=True)
class ConsumerStatus:
    """The figures of one consumer (view mbus.status), read without scanning messages.

    `delayed`, `leased`, `dmq` and `blocked` are counted up to `COUNT_LIMIT`: there may be more.
    """

    queue: str
    consumer: str
    depth: int
    ready: int
    delayed: int
    leased: int
    dmq: int
    oldest_age: timedelta | None
    posted_per_second: float
    consumed_per_second: float
    is_estimate: bool
    blocked: int
    died_per_second: float
    expired_per_second: float
    rejected_per_second: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A histogram of a consumer (view mbus.measures); the last count is above all bounds."""

    queue: str
    consumer: str
    kind: str
    bounds: list[float]
    counts: list[int]
    total: float


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead message and its error (view mbus.dead); `data` is the payload as text."""

    queue: str
    consumer: str
    iid: str
    error: str | None
    attempts: int
    history: Any
    died_at: datetime
    added: datetime
    headers: Hstore
    properties: Hstore
    data: str | None


@dataclass(frozen=True, slots=True)
class Maintained:
    """The work of one maintenance call for one queue; queues without work are not listed."""

    queue: str
    rotated: int
    reclaimed: int
    released: int
    ended: int
    expired: int
    settled: int
