"""Quality of service: the unacknowledged messages of a channel and their limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroad.broker.channel import Channel

# The largest batch, also without a limit, so that other consumers get messages too.
MAX_BATCH = 100


class Quality:
    """Kombu's QoS. Acks may come from any thread; the operations used here are atomic on a dict."""

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count or 0
        self.delivered: dict[str, Any] = {}

    def free_slots(self) -> int:
        """Return how many more messages may be delivered."""
        if not self.prefetch_count:
            return MAX_BATCH
        return min(max(self.prefetch_count - len(self.delivered), 0), MAX_BATCH)

    def can_consume(self) -> bool:
        """Return whether a message may be delivered."""
        return self.free_slots() > 0

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count a delivered message."""
        self.delivered[delivery_tag] = message

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.acknowledge(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Return a message to its queue, or dead-letter it."""
        if self.delivered.pop(delivery_tag, None) is not None:
            self.channel.refuse(delivery_tag, requeue=requeue)

    def restore_unacked(self) -> list[Any]:
        """Return every unacknowledged message to its queue."""
        tags = list(self.delivered)
        self.delivered.clear()
        self.channel.release(tags)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:  # noqa: ARG002
        """Do the same at the end of a channel; Kombu's name for it."""
        self.restore_unacked()
