"""Prometheus metrics of all components, from the same cache as the pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from postroad import __version__
from postroad.console.component_metrics import component_metrics
from postroad.console.context import Context
from postroad.console.resources import SERVICES

_CONSUMER_GAUGES = {
    "depth": ("postroad_queue_depth_messages", "Messages that a consumer still has to handle."),
    "ready": ("postroad_queue_ready_messages", "Messages that can be taken now."),
    "delayed": ("postroad_queue_delayed_messages", "Messages that are delayed."),
    "leased": ("postroad_queue_leased_messages", "Messages leased by workers."),
    "dmq": (
        "postroad_queue_dead_messages",
        "Dead messages, counted up to 10,000 per consumer.",
    ),
    "posted_per_second": ("postroad_queue_posted_per_second", "Messages posted per second."),
    "consumed_per_second": ("postroad_queue_consumed_per_second", "Messages consumed per second."),
    "died_per_second": (
        "postroad_queue_died_per_second",
        "Messages moved to the dead message queue per second.",
    ),
    "expired_per_second": ("postroad_queue_expired_per_second", "Messages expired per second."),
    "rejected_per_second": (
        "postroad_queue_rejected_per_second",
        "Messages given back to be retried per second.",
    ),
}


async def metrics_text(context: Context) -> bytes:
    """Return everything in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Found(await _collect(context)))
    return generate_latest(registry)


class _Found(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


async def _collect(context: Context) -> list[Metric]:
    info = GaugeMetricFamily("postroad_info", "Version of Postroad.", labels=["version"])
    info.add_metric([__version__], 1)
    return [
        info,
        *await _bus(context),
        *await _services(context),
        *await component_metrics(context),
    ]


async def _bus(context: Context) -> list[Metric]:
    found = await context.history.status()
    families: list[Metric] = []
    for name, (metric, text) in _CONSUMER_GAUGES.items():
        family = GaugeMetricFamily(metric, text, labels=["queue", "consumer"])
        for one in found:
            family.add_metric([one.queue, one.consumer], float(getattr(one, name) or 0))
        families.append(family)
    ages = GaugeMetricFamily(
        "postroad_queue_oldest_age_seconds",
        "Age of the oldest message that can be taken.",
        labels=["queue", "consumer"],
    )
    for one in found:
        age = one.oldest_age.total_seconds() if one.oldest_age else 0.0
        ages.add_metric([one.queue, one.consumer], age)
    maintenance = GaugeMetricFamily(
        "postroad_bus_maintenance_age_seconds",
        "Seconds since bus maintenance last ran.",
        value=await context.cache.get("maintenance", context.database.maintenance_age_seconds, 5),
    )
    return [*families, ages, maintenance]


async def _services(context: Context) -> list[Any]:
    up = GaugeMetricFamily(
        "postroad_service_up", "Whether a service runs.", labels=["host", "service"]
    )
    restarts = GaugeMetricFamily(
        "postroad_service_restarts",
        "How often a service was restarted.",
        labels=["host", "service"],
    )
    load = partial(context.connections.run, SERVICES.all)
    for one in await context.cache.get("services", load):
        up.add_metric([one["host"], one["name"]], 1.0 if one["state"] == "running" else 0.0)
        restarts.add_metric([one["host"], one["name"]], float(one["restarts"]))
    return [up, restarts]
