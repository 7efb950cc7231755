"""Metrics of the components above the bus; omitted if not installed or unreachable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import psycopg
from prometheus_client.core import GaugeMetricFamily, Metric
from psycopg_pool import PoolTimeout

from postroad.console.context import Context
from postroad.console.pages import is_there
from postroad.postgres.errors import DatabaseUnavailable

AGE_SECONDS = 5.0


def gauges(
    rows: Sequence[Any], labels: Mapping[str, str], columns: Mapping[str, tuple[str, str]]
) -> list[Metric]:
    """Return a gauge for each column, by its name and description, with a value per row.

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


async def component_metrics(context: Context) -> list[Metric]:
    """Collect the metrics of all components."""
    components: tuple[tuple[str, Callable[[Context], Awaitable[list[Metric]]]], ...] = (
        ("postroad.alerts", _alerts),
        ("postroad.exchange", _exchange),
        ("postroad.intake", _intake),
        ("postroad.coordination", _coordination),
        ("postroad.bridge.status", _bridges),
    )
    found: list[Metric] = []
    for package, collect in components:
        if is_there(package):
            try:
                found += await collect(context)
            except (psycopg.Error, PoolTimeout, OSError, DatabaseUnavailable):
                continue
    return found


async def _alerts(context: Context) -> list[Metric]:
    from postroad.alerts.resources import ALERTS, SEVERITIES

    opened = await context.cache.get(
        "alerts.open", lambda: context.connections.run(ALERTS.page, limit=200), AGE_SECONDS
    )
    severities = [one["severity"] for one in opened.rows]
    rows = [{"severity": one, "count": severities.count(one)} for one in SEVERITIES]
    return gauges(
        rows, {"severity": "severity"}, {"count": ("postroad_alerts_open", "Open alerts.")}
    )


async def _exchange(context: Context) -> list[Metric]:
    from postroad.exchange.resources import DATABASES

    page = await context.cache.get(
        "exchange.databases",
        lambda: context.connections.run(DATABASES.page, limit=1000),
        AGE_SECONDS,
    )
    columns = {
        "queued": (
            "postroad_exchange_queued_messages",
            "Messages that wait for an instance of the ERP.",
        ),
        "leased": ("postroad_exchange_leased_messages", "Messages in a process."),
        "deferred": (
            "postroad_exchange_deferred_messages",
            "Messages that wait for their next try.",
        ),
        "parked": ("postroad_exchange_parked_messages", "Messages that were parked."),
        "in_doubt": ("postroad_exchange_in_doubt_processes", "Processes whose outcome is unknown."),
    }
    return gauges(page.rows, {"database": "id"}, columns)


async def _intake(context: Context) -> list[Metric]:
    from postroad.intake import status

    counts = await context.cache.get(
        "intake.counts", lambda: context.connections.run(status.counts), AGE_SECONDS
    )
    rows = [{"status": name, "count": count} for name, count in counts.items()]
    return gauges(
        rows, {"status": "status"}, {"count": ("postroad_intake_files", "Files by status.")}
    )


async def _coordination(context: Context) -> list[Metric]:
    from postroad.coordination.resources import READERS

    connections = context.components.coordination.get("coordinator")
    if connections is None:
        return []
    readers = await context.cache.get(
        "coordination.readers", lambda: connections.run(READERS.page, limit=1000), AGE_SECONDS
    )
    columns = {
        "behind": ("postroad_coordination_behind_events", "Events that a reader lacks."),
        "parked": ("postroad_coordination_parked_events", "Events parked at a reader."),
    }
    return gauges(readers.rows, {"reader": "reader"}, columns)


async def _bridges(context: Context) -> list[Metric]:
    from postroad.bridge import status

    addresses = context.components.bridge_addresses
    if addresses is None:
        return []
    found = await context.cache.get("bridges", lambda: status.status(addresses), AGE_SECONDS)
    columns = {
        "lag": ("postroad_bridge_lag_messages", "Messages that wait to be carried."),
        "per_second": ("postroad_bridge_carried_per_second", "Messages carried per second."),
    }
    return gauges(found, {"bridge": "name"}, columns)
