"""The root of every error that Postroad raises.

Each component has one family, whose name ends in `Error`, in its module `errors`: the table of its
leaves. A leaf is named by the fact that it states:
`class QueueBusy(BusError, code="MB017", kind="unavailable", retryable=True)`.

`code` is stable: the SQLSTATE that the database raises, or by default family and name
(`bus_queue_busy`). `kind` determines the exit code of the command line and the HTTP status, unless
a `status` is given; `retryable` states whether repeating the call can help. The reference page is
generated from the classes. This module needs the standard library only, because the bus client is
installed with the driver alone.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

Kind = Literal["error", "usage", "not_found", "refused", "unavailable"]


class PostroadError(Exception):
    """The base class of every error that Postroad raises on purpose.

    The message states what happened, `hint` what to do about it, and `facts` holds the ids of the
    things involved (`queue="orders"`), which are also attributes of the error.
    """

    code: ClassVar[str] = "postroad"
    retryable: ClassVar[bool] = False
    kind: ClassVar[Kind] = "error"

    message: str
    hint: str | None
    facts: dict[str, Any]

    def __init_subclass__(
        cls,
        *,
        code: str | None = None,
        kind: Kind | None = None,
        retryable: bool | None = None,
        status: int | str | None = None,
    ) -> None:
        super().__init_subclass__()
        if code is None and "code" not in cls.__dict__:
            families = [one for one in cls.__mro__ if issubclass(one, PostroadError)]
            code = f"{families[-2].code}_{re.sub('(?<=[a-z])(?=[A-Z])', '_', cls.__name__).lower()}"
        given = {"code": code, "kind": kind, "retryable": retryable, "status": status}
        for name, value in given.items():
            if value is not None:
                setattr(cls, name, value)

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only called when normal lookup fails; `facts` itself is absent while unpickling.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt by calling the class with `args`, which fails for every leaf whose
        # constructor needs more. Restoring the state instead works for all of them.
        return _restore, (type(self), self.args, self.__dict__.copy())


def first_line(failure: BaseException) -> str:
    """Return the first line of an error, or its kind if it has no text."""
    return (str(failure).strip() or type(failure).__name__).splitlines()[0]


def _restore(
    cls: type[PostroadError], args: tuple[Any, ...], state: dict[str, Any]
) -> PostroadError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(PostroadError, code="configuration", kind="usage"):
    """The configuration has an unknown key or an invalid value."""
