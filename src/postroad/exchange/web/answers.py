"""The OpenAPI models of the answers of the protocol's calls.

Handlers write their answers directly; `tests/acceptance/test_exchange_contract.py` compares real
answers with these models.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal[
    "STARTED", "READY_TO_COMMIT", "UNKNOWN", "CLEANUP", "FAILED", "DONE", "ABORTED", "CANCELLED"
]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Acknowledged(_Answer):
    """The call is recorded durably. A repeated call gets the same answer."""

    status: Literal["OK"]


class Prepared(_Answer):
    """The verdict on a call of a process."""

    status: Literal["OK", "CANCELLED"]
    """`OK`: continue. `CANCELLED`: the process is over; roll back and start a new one."""


class Renewed(Prepared):
    """Whether the process was given more time."""

    expires_at: datetime | None = None
    """When the server cancels the process unless it is renewed again."""


class Accepted(Acknowledged):
    """The message is stored durably."""

    id: str
    """The id that the sender chose; repeating it stores nothing a second time."""
    database: str
    recipient: str | None
    sender: str
    """The client whose token was used."""
    sequence: int
    """Position among the messages of this sender for this database."""
    name: str
    """File name in the folder of the database."""
    size: int
    """Stored bytes."""
    sha256: str
    """SHA-256 of the stored bytes, in hexadecimal."""


class MessageStatus(_Answer):
    """The state of a message."""

    id: str
    database: str
    recipient: str | None
    sequence: int
    state: Literal["queued", "leased", "deferred", "parked", "unknown", "done"]
    """`leased`: a process has it. `unknown`: its process is in doubt. `parked`: an administrator
    decides. `done`: processed."""
    error: str | None
    """Why it was deferred, parked or handed out again, as the ERP reported it."""
    failures: int
    """How often it was processed without success."""
    created_at: datetime
    finished_at: datetime | None


class Stored(Prepared):
    """The verdict on an uploaded reply."""

    name: str | None = None
    size: int | None = None
    sha256: str | None = None
    """Give this digest in API_3 to name the reply."""


class _Content(_Answer):
    """Content of a file: `body`, or `content_base64`, or `href` for a large one."""

    body: Any = None
    """The JSON value that the sender gave."""
    content_base64: str | None = None
    """Other content, in base64; `media_type` names its kind."""
    media_type: str | None = None
    href: str | None = None
    """Path of a large content; GET it with the same token."""


class _File(_Answer):
    """The facts of a file of a process that every answer contains."""

    name: str
    """File name; API_2 and API_3 refer to the file by it."""
    id: str
    """The id that the sender chose."""
    sender: str
    sequence: int
    size: int
    sha256: str


class FileHanded(_File, _Content):
    """One file that a process hands over."""

    order: int | None = None
    """The sender's own order number, if one was given."""
    is_group: bool = False
    """Whether `body` is a list of messages that are handled as a whole."""


class _Process(_Answer):
    """The facts of a process that every answer contains."""

    id: str
    database: str
    recipient: str
    owner: str
    """The client that started it."""
    state: State
    outcome: Literal["COMMITTED", "ABORTED"] | None
    started_at: datetime
    ready_at: datetime | None
    """When API_3 was answered with OK."""
    ended_at: datetime | None
    expires_at: datetime | None
    """When the server cancels the process, or regards it as in doubt, unless it is renewed."""
    error: str | None


class ProcessHanded(_Process):
    """A process as its owner gets it."""

    marker_seq: int
    """The number to write into the marker table in the transaction that processes the files."""
    files: list[FileHanded]
    received: list[str]
    """Names of the replies that the server already has."""


class ProcessStarted(_Answer):
    """The process is started. Process its files, then call API_3."""

    status: Literal["STARTED"]
    process: ProcessHanded


class Idle(_Answer):
    """There is nothing to hand over."""

    status: Literal["IDLE"]
    retry_after: int
    """Seconds after which to ask again."""


class Busy(_Answer):
    """Another process of this database or recipient is open."""

    status: Literal["BUSY"]
    holder: str
    """The recipient that holds it."""
    since: datetime
    retry_after: int
    """Seconds after which to ask again."""


class MustResolve(_Answer):
    """Processes are in doubt. Read the marker table and repeat the call with `resolved`."""

    status: Literal["RESOLVE"]
    processes: list[str]


class Restored(_Answer):
    """The marker is behind: the database seems to be restored from a backup.

    Nothing is handed over until an administrator decides.
    """

    status: Literal["RESTORED"]
    last: int
    """The highest marker that was committed."""
    got: int
    """The marker that the call named."""


Started = Annotated[
    ProcessStarted | Idle | Busy | MustResolve | Restored, Field(discriminator="status")
]


class ReplyWaiting(_Content):
    """A reply that waits for the caller. DELETE it after it was processed."""

    id: str
    name: str
    database: str
    sender: str
    recipient: str
    sequence: int
    reply_to: str | None
    """What the ERP gave as the message that it answers."""
    process: str | None
    size: int
    sha256: str
    created_at: datetime


class FileShown(_File):
    """One file of a process, for an administrator."""

    media_type: str | None
    is_group: bool
    order: int | None
    result: Literal["PROCESSED", "DEFERRED", "INCORRECT"] | None
    """What the ERP reported in API_3."""
    error: str | None
    database: str
    folder: str | None
    object: str | None
    """Name of its content in an object store."""


class Step(_Answer):
    """One step in the history of a process."""

    state: str
    at: datetime
    actor: str | None
    """Client, administrator or part of the server that took the step."""
    note: str | None


class ReplyShown(_Answer):
    """One reply of a process."""

    name: str
    recipient: str
    state: str
    folder: str | None
    size: int
    error: str | None


class ProcessShown(_Process):
    """A process with its files and its history."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    marker_seq: int
    attempt: str
    tries: int
    files: list[FileShown]
    received: list[str]
    replies: list[ReplyShown]
    history: list[Step]


class Requeued(Acknowledged):
    """The message is handed out again."""

    state: str


class Health(Acknowledged):
    """The journal answers."""

    epoch: int
    """Number of this server's run."""
    is_full: bool
    """Whether the disk is too full to accept messages."""
