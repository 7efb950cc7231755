"""When to poll a queue: the rule that both colours follow while they wait. Pure.

The probe `mbus.positions` reads sequences, which advance when a message is posted but before its
transaction commits, and do not advance when a delay is over, a lease ends or a take is rolled back:

- a queue whose position has advanced is *warm* for a while and is polled at every tick;
- a cold queue is polled at a longer interval, whatever the probe returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

CHANNEL = "mbus"
POLL_INTERVAL_DEFAULT = timedelta(milliseconds=100)
WARM_SECONDS = 1.0
RECHECK_SECONDS = 1.0


# A maintenance call takes some milliseconds of the server's CPU time even if nothing is due.
MAINTENANCE_PAUSE_PER_DURATION = 25
# Maximum numbers per call and queue: due messages, ended leases, expired messages.
MAINTENANCE_MESSAGES = 1000


def maintenance_pause_seconds(
    interval_seconds: float, queues_moved: int, messages_moved: int, call_seconds: float
) -> float:
    """Return the pause between two maintenance calls: down to a tenth of the interval.

    A take scans the rows that were consumed since the last run, so a busy queue needs more runs.
    A call that reached its maximum is followed by the next one immediately.
    """
    shortest = interval_seconds / 10 if queues_moved else interval_seconds
    if messages_moved >= MAINTENANCE_MESSAGES:
        return shortest
    return min(interval_seconds, max(shortest, MAINTENANCE_PAUSE_PER_DURATION * call_seconds))


class PollSchedule:
    """Keeps the positions of queues and decides which ones to poll."""

    def __init__(self) -> None:
        self._positions: dict[str, int | None] = {}
        self._moved_at: dict[str, float] = {}
        self._polled_at: dict[str, float] = {}

    def due(self, now: float, positions: Mapping[str, int | None]) -> list[str]:
        """Return the queues to poll now, given fresh positions."""
        queues = []
        for queue, position in positions.items():
            if self._positions.get(queue) != position:
                self._positions[queue] = position
                self._moved_at[queue] = now
            is_warm = now - self._moved_at.get(queue, now) < WARM_SECONDS
            is_stale = now - self._polled_at.get(queue, -RECHECK_SECONDS) >= RECHECK_SECONDS
            if is_warm or is_stale:
                self._polled_at[queue] = now
                queues.append(queue)
        return queues
