"""Settings of coordination."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import Field, SecretStr

from postroad.settings.values import DatabaseUrl, Duration, Port, Section


class CoordinationSettings(Section):
    """Writer, Coordinator, Reader and Gateway. Each service has its own database."""

    writer_url: DatabaseUrl | None = None
    """The Writer's database. Default: database coordination_writer beside `database_url`."""
    coordinator_url: DatabaseUrl | None = None
    """The Coordinator's database. Default: database coordination_main beside `database_url`."""
    reader_url: DatabaseUrl | None = None
    """The Reader's database. Default: database coordination_reader beside `database_url`."""
    reader_name: str = Field(default="lists", pattern=r"^[a-z][a-z0-9_]{0,11}$")
    """The name of the Reader. Default lists."""
    page: int = Field(default=1000, ge=1, le=100_000)
    """Payloads that a Reader pulls in one page. Default 1000."""
    poll_interval: Duration = timedelta(milliseconds=10)
    """How often the Writer checks for events; ten times less often with notices. Default 10ms."""
    deadline: Duration = timedelta(seconds=30)
    """How long the votes of a two-phase event may take before it is cancelled. Default 30s."""
    resend: Duration = timedelta(seconds=30)
    """After how long the Writer resends an event that got no outcome. Default 30s."""
    ask: Duration = timedelta(seconds=10)
    """After how long the Coordinator asks a silent Reader for its vote. Default 10s."""
    max_attempts: int = Field(default=5, ge=1)
    """How often a Reader tries an event that its tables refuse before it parks it. Default 5."""
    wait: Literal["entity", "all"] = "entity"
    """What waits behind a parked event: the same `entity` only, or `all`. Default entity."""
    keep: Duration = timedelta(days=7)
    """How long finished events are kept. Default 7d."""
    after_timeout: Duration = timedelta(seconds=5)
    """How long the Gateway waits for `?after=` before it answers 503. Default 5s."""
    token: SecretStr | None = None
    """Bearer token of the Gateway. Default: `coordination.token` in the data folder."""
    host: str = "127.0.0.1"
    """Address of the Gateway. Default 127.0.0.1."""
    port: Port = 8030
    """The Gateway's port; 0 takes a free one. Default 8030."""
