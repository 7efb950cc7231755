"""Exceptions by which a handler has its message retried later or dead-lettered.

Neither is an error. A worker sets the message's next state accordingly and logs them as
information; any other exception of a handler is a failure and is retried with backoff.
"""

from __future__ import annotations

from functools import partial

from postroad.bus.parameters import Duration, length_or_none


class Retry(Exception):
    """Deliver the message again after `after`; without it, after the consumer's backoff.

    The attempt counts: after the consumer's maximum the message still goes to the dmq.
    """

    def __init__(self, reason: str | None = None, *, after: Duration | None = None) -> None:
        super().__init__(reason, after)
        self.reason = reason
        self.after = length_or_none("after", after)

    def __str__(self) -> str:
        return self.reason or "retry was requested"

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Retry, after=self.after), (self.reason,)


class Park(Exception):
    """Dead-letter the message with this reason; `redrive` delivers it again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
