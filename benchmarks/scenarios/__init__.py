"""What is measured, one scenario per file, in the order of the report."""

from __future__ import annotations

from benchmarks.result import Scenario
from benchmarks.scenarios import (
    backlog,
    bridge,
    bridge_rabbitmq,
    celery_brokers,
    console,
    coordination,
    exchange,
    fanout,
    harness,
    held,
    intake_large,
    intake_million,
    intake_small,
    many_queues,
    ordering,
    post_bulk,
    post_single,
    request,
    retention,
    snapshot,
    take,
    wal,
    worker,
)

__all__ = ["SCENARIOS"]

SCENARIOS: tuple[Scenario, ...] = (
    post_single.SCENARIO,
    post_bulk.SCENARIO,
    take.SCENARIO,
    snapshot.SCENARIO,
    held.SCENARIO,
    backlog.SCENARIO,
    wal.SCENARIO,
    worker.SCENARIO,
    harness.SCENARIO,
    fanout.SCENARIO,
    retention.SCENARIO,
    many_queues.SCENARIO,
    ordering.SCENARIO,
    request.SCENARIO,
    exchange.SCENARIO,
    celery_brokers.SCENARIO,
    intake_large.SCENARIO,
    intake_small.SCENARIO,
    intake_million.SCENARIO,
    bridge.SCENARIO,
    bridge_rabbitmq.SCENARIO,
    coordination.SCENARIO,
    console.SCENARIO,
)
