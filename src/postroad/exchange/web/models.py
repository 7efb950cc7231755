"""The bodies of the protocol's calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from postroad.exchange.content import Content, content_of
from postroad.exchange.errors import ContentInvalid
from postroad.exchange.operations import Id, Outcome
from postroad.exchange.web.values import BigInteger, Text

Attempt = Annotated[Text, StringConstraints(min_length=1, max_length=128)]
FileName = Annotated[Text, StringConstraints(min_length=1, max_length=255)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Delay = Annotated[float, Field(ge=0, le=31_536_000, allow_inf_nan=False)]
MediaType = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$", max_length=127)
]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Size = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _Body(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Content(_Body):
    """A body, or other content as base64: one of them."""

    body: Any = None
    """Any JSON value."""
    content_base64: str | None = None
    """Other content, in base64."""
    media_type: MediaType | None = None
    """Kind of `content_base64`; default `application/octet-stream`."""

    def _given(self) -> list[str]:
        names = {"body", "content_base64", "messages", "sha256"} & self.model_fields_set
        return sorted(name for name in names if name == "body" or getattr(self, name) is not None)


class Grouped(_Body):
    """One message of a group."""

    id: Id
    body: Any


class Message(_Content):
    """A message, or a group that is handled as a whole."""

    id: Id
    """Chosen by the sender, unique per sender; a repeated call with it stores nothing twice."""
    database: Id
    """The ERP database that processes the message."""
    recipient: Id | None = None
    """The ERP instance that processes it; without one, any instance of the database."""
    order: BigInteger | None = None
    """Messages of a sender with an order number are handed over by that number."""
    messages: Annotated[list[Grouped], Field(min_length=1, max_length=10_000)] | None = None
    """A group: one file, handled as a whole."""

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        if len(self._given()) != 1:
            raise ValueError("specify exactly one of body, content_base64 and messages")
        return self


class Start(_Body):
    """API_1."""

    database: Id
    attempt: Attempt
    """A text of the client's own, new for each process; a repeated call gets the same process."""
    recipient: Id | None = None
    """The mailbox to fetch for; default: the client itself."""
    max_files: Count | None = None
    max_bytes: Size | None = None
    senders: Annotated[list[Id], Field(max_length=1000)] | None = None
    """Hand over messages of these senders only."""
    resolved: dict[Text, Literal["COMMITTED", "ABORTED", "INFLIGHT"]] | None = None
    """Outcomes of processes in doubt, by id, as the marker table shows them: answers to RESOLVE."""
    marker_seq: BigInteger | None = None
    """The highest marker in the database; null where no marker table is used."""


class Choose(_Body):
    """API_2."""

    files: Annotated[list[FileName], Field(max_length=10_000)]
    """Names of the files that will be processed; the others are handed over again later."""
    reason: Text | None = None
    """Why the others are not processed."""
    delay: Delay | None = None
    """Seconds until the others are handed over again."""


class ReplyGiven(_Content):
    """A reply in API_3: its content, or the digest of one uploaded before."""

    name: Id
    """Unique in the process."""
    recipient: Id
    """The client that fetches it."""
    reply_to: Text | None = None
    """Lets the recipient find its request, usually the message's id."""
    sha256: Digest | None = None
    """Digest of a reply that was uploaded before, or of the content that is given here."""

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        given = self._given()
        if len(given) != 1 and given not in (["body", "sha256"], ["content_base64", "sha256"]):
            raise ValueError("specify exactly one of body, content_base64 and sha256")
        return self

    def stored(self) -> Content | None:
        """Return its content, None if it was uploaded before. Raises ContentInvalid."""
        if self._given() == ["sha256"]:
            return None
        content = content_of(self)
        if self.sha256 not in (None, content.sha256):
            raise ContentInvalid(f"reply {self.name} has another sha256 than given")
        return content


class ResultGiven(_Body):
    """The result of a file."""

    status: Literal["PROCESSED", "DEFERRED", "INCORRECT"]
    """`DEFERRED` is handed over again later, `INCORRECT` is parked for an administrator."""
    error: Text | None = None
    delay: Delay | None = None
    """Seconds until a deferred file is handed over again."""


class Prepare(_Body):
    """API_3."""

    replies: Annotated[list[ReplyGiven], Field(max_length=10_000)] = []
    results: dict[FileName, ResultGiven] = {}
    """By file name; a file that is not named was processed."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [reply.name.lower() for reply in self.replies]
        if len(set(names)) != len(names):
            raise ValueError("two replies have the same name")
        return self


class Ended(_Body):
    """API_5 and API_6."""

    error: Text | None = None


class Resolve(_Body):
    """The outcome of a process by its marker."""

    outcome: Literal["COMMITTED", "ABORTED", "INFLIGHT"]


class Release(_Body):
    """An administrator's decision."""

    outcome: Outcome | None = None
    reason: Text | None = None


class Requeue(_Body):
    """Selects the message where its id is not unique."""

    sender: Id | None = None
    database: Id | None = None
    recipient: Id | None = None
