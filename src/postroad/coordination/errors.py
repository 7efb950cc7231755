"""Errors of coordination: one class per SQLSTATE that schema coordination raises.

Errors are distinguished by code, never by text. Others stay the driver's errors.
"""

from postroad.errors import PostroadError


class CoordinationError(PostroadError, code="coordination"):
    """Something that coordination refuses or cannot find."""


class EntityNotFound(CoordinationError, code="PC001", kind="not_found"):
    """No entity, or no table, has this name here."""


class InvalidChoice(CoordinationError, code="PC002", kind="usage"):
    """The role, mode or policy does not exist."""


class KeyMissing(CoordinationError, code="PC003", kind="refused"):
    """The table has no primary key, or not one that rows can be written with."""


class ColumnNameTaken(CoordinationError, code="PC004", kind="refused"):
    """A column has a name that is reserved for images, or cannot be updated."""


class EventNotFound(CoordinationError, code="PC005", kind="not_found"):
    """No event has this id, or it is not pending here."""


class InvalidEntityName(CoordinationError, code="PC006", kind="usage"):
    """A name is too long or contains invalid characters."""


class EntityExists(CoordinationError, code="PC007", kind="refused"):
    """The name, or the table, belongs to another entity."""


class ReaderNotFound(CoordinationError, code="PC008", kind="not_found"):
    """The Coordinator has no reader of this name."""


class RoleTaken(CoordinationError, code="PC009", kind="refused"):
    """The database has another role or name."""


class RoleMissing(CoordinationError, code="PC010", kind="refused"):
    """The database does not have the role that this call requires."""


class InvalidPage(CoordinationError, code="PC011", kind="usage"):
    """The page size must be positive."""


class ColumnMissing(CoordinationError, code="PC012", kind="refused"):
    """The Writer sends a column that the reader's table does not have."""


class EventCommitted(CoordinationError, code="PC013", kind="refused"):
    """The event is committed and can no longer be cancelled."""


class UnknownMessage(CoordinationError, code="PC014", kind="refused"):
    """The version or kind of a message or page is not supported."""


class EventsPurged(CoordinationError, code="PC015", kind="refused"):
    """Events after the Reader's cursor were purged; the Reader takes a snapshot."""


class VersionConflict(CoordinationError, kind="refused", status=412):
    """The row was changed since the caller read it; nothing was changed."""


class RowNotFound(CoordinationError, kind="not_found"):
    """No row of the entity has this key."""


class RowRefused(CoordinationError, kind="usage"):
    """A constraint of the entity's table rejects the row."""


class ReaderBehind(CoordinationError, kind="unavailable", retryable=True):
    """The reader has not reached the event yet."""


class CoordinatorBehind(CoordinationError, kind="unavailable", retryable=True):
    """The Coordinator has not received the event yet."""


class WriterUnreachable(CoordinationError, kind="unavailable", retryable=True):
    """The Writer's database cannot be reached."""
