"""`for message in bus.subscribe("orders")`: messages as they arrive, none lost in a crash."""

from __future__ import annotations

from typing import Self

from postroad.blocking import finish
from postroad.bus.async_subscription import Messages
from postroad.bus.message import LeasedMessage


class Subscription:
    """An endless iterator of leased messages; leave it with `break` or call `close`."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LeasedMessage:
        """Ack the message handed out before, and wait for the next one."""
        message = finish(self._messages.next())
        if message is None:
            raise StopIteration
        return message

    def close(self) -> None:
        """End the iteration, from any task or thread; the current message stays leased."""
        finish(self._messages.end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        finish(self._messages.leave(error))
