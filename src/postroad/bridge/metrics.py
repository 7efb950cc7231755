"""Bridges for Prometheus: gauges read from their status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from postroad.bridge.status import BridgeStatus

_LABELS = ("bridge", "source", "target")
_GAUGES: tuple[tuple[str, str, Callable[[BridgeStatus], float | None]], ...] = (
    ("lag_messages", "Messages that wait to cross.", lambda each: each.lag),
    (
        "lag_seconds",
        "Age of the oldest of them.",
        lambda each: each.lag_age.total_seconds() if each.lag_age else 0.0,
    ),
    ("messages_per_second", "Messages carried.", lambda each: each.per_second),
    ("refused_messages", "Dead messages of the bridge.", lambda each: each.refused),
    (
        "up",
        "1 when the bridge runs without a problem.",
        lambda each: each.problem is None and each.state in ("running", "draining"),
    ),
)


class BridgeCollector(Collector):
    """Returns the last known status of the bridges; reads nothing itself."""

    def __init__(self, seen: Callable[[], Sequence[BridgeStatus]]) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        """Create the families."""
        for name, text, read in _GAUGES:
            family = GaugeMetricFamily(f"postroad_bridge_{name}", text, labels=_LABELS)
            for each in self._seen():
                if (value := read(each)) is not None:
                    family.add_metric((each.name, each.source, each.target), float(value))
            yield family
