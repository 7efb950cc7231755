"""Errors of coordination: one class per SQLSTATE that schema coordination raises.

```
CoordinationError
├── EntityNotFound    PC001   ├── ReaderNotFound    PC008
├── InvalidChoice     PC002   ├── RoleTaken         PC009
├── KeyMissing        PC003   ├── RoleMissing       PC010
├── ColumnNameTaken   PC004   ├── InvalidPage       PC011
├── EventNotFound     PC005   ├── ColumnMissing     PC012
├── InvalidEntityName PC006   ├── EventCommitted    PC013
├── EntityExists      PC007   ├── UnknownMessage    PC014
├── EventsPurged      PC015
├── VersionConflict   coordination_version_conflict
├── RowNotFound       coordination_row_not_found
├── RowRefused        coordination_row_refused
├── ReaderBehind      coordination_reader_behind    retryable
├── CoordinatorBehind coordination_coordinator_behind   retryable
└── WriterUnreachable coordination_writer_unreachable   retryable
```

The code decides, never the text. What is not the room's own stays the driver's error.
"""

from __future__ import annotations

import psycopg

from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by

__all__ = [
    "ColumnMissing",
    "ColumnNameTaken",
    "CoordinationError",
    "CoordinatorBehind",
    "EntityExists",
    "EntityNotFound",
    "EventCommitted",
    "EventNotFound",
    "EventsPurged",
    "InvalidChoice",
    "InvalidEntityName",
    "InvalidPage",
    "KeyMissing",
    "ReaderBehind",
    "ReaderNotFound",
    "RoleMissing",
    "RoleTaken",
    "RowNotFound",
    "RowRefused",
    "UnknownMessage",
    "VersionConflict",
    "WriterUnreachable",
    "translate",
]


class CoordinationError(PostroadError, code="coordination"):
    """Something that coordination refuses or cannot find."""


class EntityNotFound(CoordinationError, code="PC001", kind="not_found"):
    """No entity, or no table, has this name here."""


class InvalidChoice(CoordinationError, code="PC002", kind="usage"):
    """A role, mode or policy that does not exist."""


class KeyMissing(CoordinationError, code="PC003", kind="refused"):
    """The table has no primary key by which its rows are found again."""


class ColumnNameTaken(CoordinationError, code="PC004", kind="refused"):
    """A column has a name that the images use themselves."""


class EventNotFound(CoordinationError, code="PC005", kind="not_found"):
    """No event has this id, or it does not wait here."""


class InvalidEntityName(CoordinationError, code="PC006", kind="usage"):
    """A name is too long, or made of characters that names do not have."""


class EntityExists(CoordinationError, code="PC007", kind="refused"):
    """The name, or the table, belongs to another entity."""


class ReaderNotFound(CoordinationError, code="PC008", kind="not_found"):
    """The Coordinator knows no reader of this name."""


class RoleTaken(CoordinationError, code="PC009", kind="refused"):
    """The database plays another part, or has another name."""


class RoleMissing(CoordinationError, code="PC010", kind="refused"):
    """The database does not play the part that this call is for."""


class InvalidPage(CoordinationError, code="PC011", kind="usage"):
    """A page of no payloads was asked for."""


class ColumnMissing(CoordinationError, code="PC012", kind="refused"):
    """The Writer sends a column that the reader's table does not have."""


class EventCommitted(CoordinationError, code="PC013", kind="refused"):
    """The event is committed, so it cannot be cancelled any more."""


class UnknownMessage(CoordinationError, code="PC014", kind="refused"):
    """A message or page of a version or kind that this Postroad does not know."""


class EventsPurged(CoordinationError, code="PC015", kind="refused"):
    """Events after the Reader's cursor are no longer kept; it takes a snapshot."""


class VersionConflict(CoordinationError, kind="refused"):
    """The row was changed since the caller read it; nothing was changed."""

    status = 412


class RowNotFound(CoordinationError, kind="not_found"):
    """No row of the entity has this key."""


class RowRefused(CoordinationError, kind="usage"):
    """The entity's table refuses the row: a value too long, a missing one, a broken reference."""


class ReaderBehind(CoordinationError, kind="unavailable", retryable=True):
    """The reader did not have the event in time; asking again may succeed."""


class CoordinatorBehind(CoordinationError, kind="unavailable", retryable=True):
    """The Coordinator has not heard of the event yet; asking again may succeed."""


class WriterUnreachable(CoordinationError, kind="unavailable", retryable=True):
    """The Writer's database cannot be reached, so nothing can be pulled from it."""


def translate(error: psycopg.Error) -> CoordinationError | None:
    """Return the component's error for one that schema coordination raised, else None."""
    return raised_by(CoordinationError, error)
