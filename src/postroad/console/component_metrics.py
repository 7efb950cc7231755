"""Metrics of the components above the bus; omitted if not installed or unreachable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg
from prometheus_client.core import GaugeMetricFamily, Metric
from psycopg_pool import PoolTimeout

from postroad.console.context import Context
from postroad.console.pages import is_there
from postroad.postgres.errors import DatabaseUnavailable

AGE_SECONDS = 5.0


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
        "alerts.open",
        lambda: context.connections.run(ALERTS.page, limit=200),
        AGE_SECONDS,
    )
    family = GaugeMetricFamily("postroad_alerts_open", "Open alerts.", labels=["severity"])
    for severity in SEVERITIES:
        count = sum(one["severity"] == severity for one in opened.rows)
        family.add_metric([severity], count)
    return [family]


async def _exchange(context: Context) -> list[Metric]:
    from postroad.exchange.resources import DATABASES

    page = await context.cache.get(
        "exchange.databases",
        lambda: context.connections.run(DATABASES.page, limit=1000),
        AGE_SECONDS,
    )
    words = {
        "queued": "Messages that wait for an instance of the ERP.",
        "leased": "Messages in a process.",
        "deferred": "Messages that wait for their next try.",
        "parked": "Messages that were parked.",
        "in_doubt": "Processes whose outcome is unknown.",
    }
    families = []
    for name, text in words.items():
        unit = "processes" if name == "in_doubt" else "messages"
        family = GaugeMetricFamily(f"postroad_exchange_{name}_{unit}", text, labels=["database"])
        for one in page.rows:
            family.add_metric([one["id"]], one[name])
        families.append(family)
    return list(families)


async def _intake(context: Context) -> list[Metric]:
    from postroad.intake import status

    counts = await context.cache.get(
        "intake.counts", lambda: context.connections.run(status.counts), AGE_SECONDS
    )
    family = GaugeMetricFamily("postroad_intake_files", "Files by status.", labels=["status"])
    for name, count in counts.items():
        family.add_metric([name], count)
    return [family]


async def _coordination(context: Context) -> list[Metric]:
    from postroad.coordination.resources import READERS

    connections = context.components.coordination.get("coordinator")
    if connections is None:
        return []
    readers = await context.cache.get(
        "coordination.readers", lambda: connections.run(READERS.page, limit=1000), AGE_SECONDS
    )
    behind = GaugeMetricFamily(
        "postroad_coordination_behind_events", "Events that a reader lacks.", labels=["reader"]
    )
    parked = GaugeMetricFamily(
        "postroad_coordination_parked_events", "Events parked at a reader.", labels=["reader"]
    )
    for one in readers.rows:
        behind.add_metric([one["reader"]], one["behind"])
        parked.add_metric([one["reader"]], one["parked"])
    return [behind, parked]


async def _bridges(context: Context) -> list[Metric]:
    from postroad.bridge import status

    addresses = context.components.bridge_addresses
    if addresses is None:
        return []
    found = await context.cache.get("bridges", lambda: status.status(addresses), AGE_SECONDS)
    lag = GaugeMetricFamily(
        "postroad_bridge_lag_messages", "Messages that wait to be carried.", labels=["bridge"]
    )
    speed = GaugeMetricFamily(
        "postroad_bridge_carried_per_second", "Messages carried per second.", labels=["bridge"]
    )
    for one in found:
        lag.add_metric([one.name], one.lag or 0)
        speed.add_metric([one.name], one.per_second)
    return [lag, speed]
