"""The bodies of the protocol's calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from postroad.exchange.names import Id
from postroad.exchange.web.values import BigInteger, Text

__all__ = [
    "Answer",
    "Choose",
    "Ended",
    "Message",
    "Prepare",
    "Release",
    "Requeue",
    "Resolve",
    "Start",
]

Attempt = Annotated[Text, StringConstraints(min_length=1, max_length=128)]
FileName = Annotated[Text, StringConstraints(min_length=1, max_length=255)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Delay = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]
MediaType = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$", max_length=127)
]
Outcome = Literal["COMMITTED", "ABORTED"]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Size = Annotated[int, Field(ge=1, le=2**63 - 1)]


class Answer(BaseModel):
    """What every protocol call answers."""

    model_config = ConfigDict(extra="allow")

    status: str


class _Content(BaseModel):
    """A body, or other content as base64: one of them."""

    body: Any = None
    content_base64: str | None = None
    media_type: MediaType | None = None

    def _given(self) -> list[str]:
        names = {"body", "content_base64", "messages", "sha256"} & self.model_fields_set
        return sorted(name for name in names if name == "body" or getattr(self, name) is not None)


class Grouped(BaseModel):
    """One message of a group."""

    id: Id
    body: Any


class Message(_Content):
    """A message, or a group that is handled as a whole."""

    id: Id
    database: Id
    recipient: Id | None = None
    order: BigInteger | None = None
    messages: Annotated[list[Grouped], Field(min_length=1, max_length=10_000)] | None = None

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError("give exactly one of body, content_base64 and messages")
        return self


class Start(BaseModel):
    """API_1."""

    database: Id
    attempt: Attempt
    recipient: Id | None = None
    max_files: Count | None = None
    max_bytes: Size | None = None
    senders: Annotated[list[Id], Field(max_length=1000)] | None = None
    resolved: dict[Text, Literal["COMMITTED", "ABORTED", "INFLIGHT"]] | None = None
    marker_seq: BigInteger | None = None


class Choose(BaseModel):
    """API_2."""

    files: Annotated[list[FileName], Field(max_length=10_000)]
    reason: Text | None = None
    delay: Delay | None = None


class ReplyGiven(_Content):
    """A reply in API_3: its content, or the digest of one uploaded before."""

    name: Id
    recipient: Id
    reply_to: Text | None = None
    sha256: Digest | None = None

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        given = self._given()
        if len(given) != 1 and given not in (["body", "sha256"], ["content_base64", "sha256"]):
            raise ValueError("give exactly one of body, content_base64 and sha256")
        return self


class ResultGiven(BaseModel):
    """What became of a file."""

    status: Literal["PROCESSED", "DEFERRED", "INCORRECT"]
    error: Text | None = None
    delay: Delay | None = None


class Prepare(BaseModel):
    """API_3."""

    replies: Annotated[list[ReplyGiven], Field(max_length=10_000)] = []
    results: dict[FileName, ResultGiven] = {}

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [reply.name.lower() for reply in self.replies]
        if len(set(names)) != len(names):
            raise ValueError("two replies have the same name")
        return self


class Ended(BaseModel):
    """API_5 and API_6."""

    error: Text | None = None


class Resolve(BaseModel):
    """What the marker says about a process."""

    outcome: Literal["COMMITTED", "ABORTED", "INFLIGHT"]


class Release(BaseModel):
    """An administrator's decision."""

    outcome: Outcome | None = None
    reason: Text | None = None


class Requeue(BaseModel):
    """Which message is meant, where its id alone does not say."""

    sender: Id | None = None
    database: Id | None = None
    recipient: Id | None = None
