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


class CoordinationError(PostroadError):
    """Something that coordination refuses or cannot find."""

    code = "coordination"


class EntityNotFound(CoordinationError):
    """No entity, or no table, has this name here."""

    code = "PC001"
    kind = "not_found"


class InvalidChoice(CoordinationError):
    """A role, mode or policy that does not exist."""

    code = "PC002"
    kind = "usage"


class KeyMissing(CoordinationError):
    """The table has no primary key by which its rows are found again."""

    code = "PC003"
    kind = "refused"


class ColumnNameTaken(CoordinationError):
    """A column has a name that the images use themselves."""

    code = "PC004"
    kind = "refused"


class EventNotFound(CoordinationError):
    """No event has this id, or it does not wait here."""

    code = "PC005"
    kind = "not_found"


class InvalidEntityName(CoordinationError):
    """A name is too long, or made of characters that names do not have."""

    code = "PC006"
    kind = "usage"


class EntityExists(CoordinationError):
    """The name, or the table, belongs to another entity."""

    code = "PC007"
    kind = "refused"


class ReaderNotFound(CoordinationError):
    """The Coordinator knows no reader of this name."""

    code = "PC008"
    kind = "not_found"


class RoleTaken(CoordinationError):
    """The database plays another part, or has another name."""

    code = "PC009"
    kind = "refused"


class RoleMissing(CoordinationError):
    """The database does not play the part that this call is for."""

    code = "PC010"
    kind = "refused"


class InvalidPage(CoordinationError):
    """A page of no payloads was asked for."""

    code = "PC011"
    kind = "usage"


class ColumnMissing(CoordinationError):
    """The Writer sends a column that the reader's table does not have."""

    code = "PC012"
    kind = "refused"


class EventCommitted(CoordinationError):
    """The event is committed, so it cannot be cancelled any more."""

    code = "PC013"
    kind = "refused"


class UnknownMessage(CoordinationError):
    """A message or page of a version or kind that this Postroad does not know."""

    code = "PC014"
    kind = "refused"


class EventsPurged(CoordinationError):
    """Events after the Reader's cursor are no longer kept; it takes a snapshot."""

    code = "PC015"
    kind = "refused"


class VersionConflict(CoordinationError):
    """The row was changed since the caller read it; nothing was changed."""

    code = "coordination_version_conflict"
    kind = "refused"
    status = 412


class RowNotFound(CoordinationError):
    """No row of the entity has this key."""

    code = "coordination_row_not_found"
    kind = "not_found"


class RowRefused(CoordinationError):
    """The entity's table refuses the row: a value too long, a missing one, a broken reference."""

    code = "coordination_row_refused"
    kind = "usage"


class ReaderBehind(CoordinationError):
    """The reader did not have the event in time; asking again may succeed."""

    code = "coordination_reader_behind"
    retryable = True
    kind = "unavailable"


class CoordinatorBehind(CoordinationError):
    """The Coordinator has not heard of the event yet; asking again may succeed."""

    code = "coordination_coordinator_behind"
    retryable = True
    kind = "unavailable"


class WriterUnreachable(CoordinationError):
    """The Writer's database cannot be reached, so nothing can be pulled from it."""

    code = "coordination_writer_unreachable"
    retryable = True
    kind = "unavailable"


_BY_CODE: dict[str, type[CoordinationError]] = {
    leaf.code: leaf for leaf in CoordinationError.__subclasses__() if leaf.code.startswith("PC")
}


def translate(error: psycopg.Error) -> CoordinationError | None:
    """Give the room's error for the driver's, to be raised from it; None if it has none."""
    leaf = _BY_CODE.get(error.sqlstate or "")
    if leaf is None:
        return None
    return leaf(error.diag.message_primary or str(error), hint=error.diag.message_hint or None)
