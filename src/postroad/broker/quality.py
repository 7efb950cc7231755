"""Quality of service: how many messages a channel has out at once, and what becomes of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroad.broker.channel import Channel

# An unlimited window still takes in portions, so that others get some.
PORTION = 100


class Quality:
    """What Kombu calls QoS. Acks may come from any thread; a dict is safe for what is done here."""

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count or 0
        self.delivered: dict[str, Any] = {}

    def room(self) -> int:
        """Tell how many more messages may come."""
        if not self.prefetch_count:
            return PORTION
        return min(max(self.prefetch_count - len(self.delivered), 0), PORTION)

    def can_consume(self) -> bool:
        """Tell whether a message may come."""
        return self.room() > 0

    def can_consume_max_estimate(self) -> int:
        """Tell how many more messages may come."""
        return self.room()

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a message that was handed out."""
        self.delivered[delivery_tag] = message

    def get(self, delivery_tag: str) -> Any:
        """Give a message that was handed out."""
        return self.delivered[delivery_tag]

    def ack(self, delivery_tag: str) -> None:
        """Take note that a message is done with."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.settle(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, or have it put with the dead."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.refuse(delivery_tag, requeue=requeue)

    def restore_unacked(self) -> list[Any]:
        """Give everything back at once."""
        tags = list(self.delivered)
        self.delivered.clear()
        self.channel.restore(tags)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002
        """Do the same at the end of a channel; Kombu's name for it."""
        self.restore_unacked()

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Do nothing: there is no visibility time-out."""
