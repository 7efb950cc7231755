"""Prometheus metrics of all components, from the same cache as the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import accumulate
from typing import Any

import psycopg
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from psycopg_pool import PoolTimeout

from postroad import __version__
from postroad.alerts.resources import ALERTS, SEVERITIES
from postroad.bridge.resources import STATUS
from postroad.console.context import Context
from postroad.console.incidents import MAX_OPEN
from postroad.console.resources import SERVICES
from postroad.coordination.resources import READERS
from postroad.exchange.resources import DATABASES
from postroad.intake import status
from postroad.operate import Resource
from postroad.postgres.errors import DatabaseUnavailable

AGE_SECONDS = 5.0

# By column: the name of the metric and its description.
Gauges = Mapping[str, tuple[str, str]]

_OF_CONSUMERS: Gauges = {
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
# By kind of mbus.measures: the name of the histogram, its description and its label outcome.
_MEASURED: Mapping[str, tuple[str, str, str | None]] = {
    "wait": ("postroad_wait_seconds", "From post, or the end of a delay, to the take.", None),
    "handled": ("postroad_handling_seconds", "Duration of handlers.", "done"),
    "failed": ("postroad_handling_seconds", "Duration of handlers.", "failed"),
    "attempts": ("postroad_handling_attempts", "Attempts of handled messages.", None),
    "batch": ("postroad_batch_messages", "Messages that a worker took together.", None),
}
_OF_SERVICES: Gauges = {
    "is_up": ("postroad_service_up", "Whether a service runs."),
    "restarts": ("postroad_service_restarts", "How often a service was restarted."),
}
_OF_EXCHANGE: Gauges = {
    "queued": (
        "postroad_exchange_queued_messages",
        "Messages that wait for an instance of the ERP.",
    ),
    "leased": ("postroad_exchange_leased_messages", "Messages in a process."),
    "deferred": ("postroad_exchange_deferred_messages", "Messages that wait for their next try."),
    "parked": ("postroad_exchange_parked_messages", "Messages that were parked."),
    "in_doubt": ("postroad_exchange_in_doubt_processes", "Processes whose outcome is unknown."),
}
_OF_MAINTENANCE: Gauges = {
    "age": ("postroad_bus_maintenance_age_seconds", "Seconds since bus maintenance last ran."),
}
_OF_READERS: Gauges = {
    "behind": ("postroad_coordination_behind_events", "Events that a reader lacks."),
    "parked": ("postroad_coordination_parked_events", "Events parked at a reader."),
}
_OF_BRIDGES: Gauges = {
    "lag": ("postroad_bridge_lag_messages", "Messages that wait to be carried."),
    "per_second": ("postroad_bridge_carried_per_second", "Messages carried per second."),
}
# The gauges of lists, with the columns of their labels.
_LISTS: tuple[tuple[Resource, Gauges, Mapping[str, str]], ...] = (
    (DATABASES, _OF_EXCHANGE, {"database": "id"}),
    (READERS, _OF_READERS, {"reader": "reader"}),
    (STATUS, _OF_BRIDGES, {"bridge": "name"}),
)
_AWAY = (psycopg.Error, PoolTimeout, OSError, DatabaseUnavailable)


async def metrics_text(context: Context) -> bytes:
    """Return everything in the text format of Prometheus."""
    return generate_latest(_Found(await _collect(context)))


class _Found(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Sequence[Metric]:
        return self._metrics


def gauges(rows: Sequence[Any], columns: Gauges, **labels: str) -> list[Metric]:
    """Return a gauge for each column with a value per row.

    `labels` are the names of the labels and their columns. A duration is in seconds, null is zero.
    """

    def value(row: Any, name: str) -> Any:
        return row[name] if isinstance(row, dict) else getattr(row, name)

    found: list[Metric] = []
    for column, (metric, text) in columns.items():
        family = GaugeMetricFamily(metric, text, labels=list(labels))
        for row in rows:
            amount = value(row, column)
            seconds = amount.total_seconds() if isinstance(amount, timedelta) else amount
            family.add_metric([value(row, one) for one in labels.values()], float(seconds or 0))
        found.append(family)
    return found


def histograms(rows: Iterable[Any]) -> list[Metric]:
    """Return the histograms of rows of mbus.measures."""
    families: dict[str, HistogramMetricFamily] = {}
    for name, text, outcome in _MEASURED.values():
        labels = ("queue", "consumer", *(("outcome",) if outcome else ()))
        families.setdefault(name, HistogramMetricFamily(name, text, labels=labels))
    for row in rows:
        name, _, outcome = _MEASURED[row.kind]
        limits = [*map(floatToGoString, row.bounds), "+Inf"]
        families[name].add_metric(
            [row.queue, row.consumer, *([outcome] if outcome else [])],
            list(zip(limits, accumulate(map(float, row.counts)), strict=True)),
            row.total,
        )
    return list(families.values())


async def _collect(context: Context) -> list[Metric]:
    info = [{"version": __version__, "is_there": True}]
    version: Gauges = {"is_there": ("postroad_info", "Version of Postroad.")}
    maintenance = [{"age": await context.maintenance_age()}]
    services = [
        {**one, "is_up": one["state"] == "running"}
        for one in await context.cache.get(*context.reading(SERVICES))
    ]
    found = [
        *gauges(info, version, version="version"),
        *gauges(await context.history.status(), _OF_CONSUMERS, queue="queue", consumer="consumer"),
        *gauges(maintenance, _OF_MAINTENANCE),
        *histograms(await context.cache.get("measures", context.bus.measures, AGE_SECONDS)),
        *gauges(services, _OF_SERVICES, host="host", service="name"),
    ]
    # A component that cannot be reached is omitted.
    for count in (_alerts, _intake):
        with suppress(*_AWAY):
            found += await count(context)
    for resource, columns, labels in _LISTS:
        with suppress(*_AWAY):
            rows = await context.cache.get(*context.reading(resource), AGE_SECONDS)
            found += gauges(rows, columns, **labels)
    return found


async def _alerts(context: Context) -> list[Metric]:
    read = context.reading(ALERTS, limit=MAX_OPEN)
    severities = [one["severity"] for one in await context.cache.get(*read, AGE_SECONDS)]
    rows = [{"severity": one, "count": severities.count(one)} for one in SEVERITIES]
    counted: Gauges = {"count": ("postroad_alerts_open", "Open alerts.")}
    return gauges(rows, counted, severity="severity")


async def _intake(context: Context) -> list[Metric]:
    read = partial(context.connections.run, status.counts)
    counts = await context.cache.get("intake.counts", read, AGE_SECONDS)
    rows = [{"status": name, "count": count} for name, count in counts.items()]
    counted: Gauges = {"count": ("postroad_intake_files", "Files by status.")}
    return gauges(rows, counted, status="status")
