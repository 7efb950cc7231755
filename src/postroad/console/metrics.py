"""Prometheus metrics of all components, from the same cache as the pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from postroad import __version__
from postroad.console.component_metrics import component_metrics, gauges
from postroad.console.context import Context
from postroad.console.resources import SERVICES

_OF_CONSUMERS = {
    "depth": ("postroad_queue_depth_messages", "Messages that a consumer still has to handle."),
    "ready": ("postroad_queue_ready_messages", "Messages that can be taken now."),
    "delayed": ("postroad_queue_delayed_messages", "Messages that are delayed."),
    "leased": ("postroad_queue_leased_messages", "Messages leased by workers."),
    "dmq": ("postroad_queue_dead_messages", "Dead messages, counted up to 10,000 per consumer."),
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
    "oldest_age": (
        "postroad_queue_oldest_age_seconds",
        "Age of the oldest message that can be taken.",
    ),
}
_OF_SERVICES = {
    "is_up": ("postroad_service_up", "Whether a service runs."),
    "restarts": ("postroad_service_restarts", "How often a service was restarted."),
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
    info = [{"version": __version__, "is_there": True}]
    consumers = await context.history.status()
    maintenance = GaugeMetricFamily(
        "postroad_bus_maintenance_age_seconds",
        "Seconds since bus maintenance last ran.",
        value=await context.cache.get("maintenance", context.database.maintenance_age_seconds, 5),
    )
    load = partial(context.connections.run, SERVICES.all)
    services = [
        {**one, "is_up": one["state"] == "running"}
        for one in await context.cache.get("services", load)
    ]
    return [
        *gauges(
            info, {"version": "version"}, {"is_there": ("postroad_info", "Version of Postroad.")}
        ),
        *gauges(consumers, {"queue": "queue", "consumer": "consumer"}, _OF_CONSUMERS),
        maintenance,
        *gauges(services, {"host": "host", "service": "name"}, _OF_SERVICES),
        *await component_metrics(context),
    ]
