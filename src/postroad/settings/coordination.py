"""Settings of coordination."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, SecretStr

from postroad.settings.values import DatabaseUrl, Duration, Section

__all__ = ["CoordinationSettings"]

PAGE_DEFAULT = 10
POLL_INTERVAL_DEFAULT = timedelta(milliseconds=10)
DEADLINE_DEFAULT = timedelta(seconds=30)
RESEND_DEFAULT = timedelta(seconds=30)
ASK_DEFAULT = timedelta(seconds=10)
KEEP_DEFAULT = timedelta(days=7)
MAX_ATTEMPTS_DEFAULT = 5
AFTER_TIMEOUT_DEFAULT = timedelta(seconds=5)
PORT_DEFAULT = 8030


class CoordinationSettings(Section):
    """Writer, Coordinator, Reader and Gateway. Each service has a database of its own."""

    writer_url: DatabaseUrl | None = None
    """The Writer's database. Default: database coordination_writer beside `database_url`."""

    coordinator_url: DatabaseUrl | None = None
    """The Coordinator's database. Default: database coordination_main beside `database_url`."""

    reader_url: DatabaseUrl | None = None
    """The Reader's database. Default: database coordination_reader beside `database_url`."""

    reader_name: str = Field(default="lists", pattern=r"^[a-z][a-z0-9_]{0,11}$")
    """The name of the Reader. Default lists."""

    page: int = Field(default=PAGE_DEFAULT, ge=1, le=100_000)
    """Payloads that a Reader pulls at once. Default 10."""

    poll_interval: Duration = POLL_INTERVAL_DEFAULT
    """How often the Writer looks for captured events. Default 10ms."""

    deadline: Duration = DEADLINE_DEFAULT
    """How long the votes of a two-phase event may take before it is cancelled. Default 30s."""

    resend: Duration = RESEND_DEFAULT
    """After how long the Writer tells an event again that got no outcome. Default 30s."""

    ask: Duration = ASK_DEFAULT
    """After how long the Coordinator asks a silent Reader for which events wait. Default 10s."""

    max_attempts: int = Field(default=MAX_ATTEMPTS_DEFAULT, ge=1)
    """How often a Reader tries an event that its tables refuse before it parks it. Default 5."""

    wait: Literal["entity", "all"] = "entity"
    """What waits behind a parked event: the same `entity` only, or `all`. Default entity."""

    keep: Duration = KEEP_DEFAULT
    """How long finished events are kept. Default 7d."""

    after_timeout: Duration = AFTER_TIMEOUT_DEFAULT
    """How long the Gateway waits for `?after=` before it answers 503. Default 5s."""

    token: SecretStr | None = None
    """Bearer token of the Gateway. Default: `coordination.token` in the data folder."""

    host: str = "127.0.0.1"
    """Where the Gateway listens. Default 127.0.0.1."""

    port: int = Field(default=PORT_DEFAULT, ge=0, le=65535)
    """The Gateway's port; 0 takes a free one. Default 8030."""
