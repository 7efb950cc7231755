"""The root of every error that Postroad raises.

```
PostroadError
├── ConfigurationError        settings: unknown keys, values that do not parse
├── DatabaseError             room postgres (postroad.postgres.errors)
├── BusError                  room bus (postroad.bus.errors)
├── AlertsError               room alerts (postroad.alerts.errors)
└── ExchangeError             room exchange (postroad.exchange.errors)
```

A family ends in `Error`; a leaf is the fact that it states. A leaf has a stable `code`, says
whether trying again can help (`retryable`) and to which `kind` of answer it belongs, from which the
command line takes its exit code and HTTP its status. This module needs the standard library only,
because the bus client is installed without anything but the driver.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

__all__ = ["ConfigurationError", "Kind", "PostroadError"]

Kind = Literal["error", "usage", "not_found", "refused", "unavailable"]


class PostroadError(Exception):
    """Something that Postroad can name went wrong.

    The message says what happened, `hint` what to do about it, and `facts` holds the ids that it
    is about (`queue="orders"`), which are also readable as attributes of the error.
    """

    code: ClassVar[str] = "postroad"
    retryable: ClassVar[bool] = False
    kind: ClassVar[Kind] = "error"

    message: str
    hint: str | None
    facts: dict[str, Any]

    def __init__(self, message: str, *, hint: str | None = None, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        # Only reached when normal look-up fails; `facts` itself is absent while unpickling.
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are rebuilt by calling the class with `args`, which fails for every leaf whose
        # constructor asks for more. Restoring the state instead works for all of them.
        return _restore, (type(self), self.args, self.__dict__.copy())


def _restore(
    cls: type[PostroadError], args: tuple[Any, ...], state: dict[str, Any]
) -> PostroadError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(PostroadError):
    """The configuration cannot be used: an unknown key, or a value that does not parse."""

    code = "configuration"
    kind = "usage"
