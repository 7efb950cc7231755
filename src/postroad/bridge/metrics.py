"""Bridges and shards for Prometheus: gauges read from the same facts as the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from postroad.bridge.status import BridgeStatus

__all__ = ["BridgeCollector", "register_metrics"]

_LABELS = ("bridge", "source", "target")


class BridgeCollector(Collector):
    """Gives what was last seen of the bridges; reads nothing itself."""

    def __init__(self, seen: Callable[[], Sequence[BridgeStatus]]) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        """Make the families."""
        lag = GaugeMetricFamily(
            "postroad_bridge_lag_messages", "Messages that wait to cross.", labels=_LABELS
        )
        age = GaugeMetricFamily(
            "postroad_bridge_lag_seconds", "Age of the oldest of them.", labels=_LABELS
        )
        rate = GaugeMetricFamily(
            "postroad_bridge_messages_per_second", "Messages carried.", labels=_LABELS
        )
        refused = GaugeMetricFamily(
            "postroad_bridge_refused_messages", "Dead messages of the bridge.", labels=_LABELS
        )
        up = GaugeMetricFamily(
            "postroad_bridge_up", "1 when the bridge runs and nothing hinders it.", labels=_LABELS
        )
        for each in self._seen():
            labels = (each.name, each.source, each.target)
            if each.lag is not None:
                lag.add_metric(labels, each.lag)
            age.add_metric(labels, each.lag_age.total_seconds() if each.lag_age else 0.0)
            rate.add_metric(labels, each.per_second)
            refused.add_metric(labels, each.refused)
            is_up = each.problem is None and each.state in ("running", "draining")
            up.add_metric(labels, 1.0 if is_up else 0.0)
        return [lag, age, rate, refused, up]


def register_metrics(
    registry: CollectorRegistry, seen: Callable[[], Sequence[BridgeStatus]]
) -> None:
    """Add the bridges to a registry that somebody serves at `/metrics`."""
    registry.register(BridgeCollector(seen))
