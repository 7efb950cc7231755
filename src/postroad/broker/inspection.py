"""`inspect scheduled` of a worker: tasks in its timer and tasks that wait in the database.

Importing the module replaces Celery's command; the transport does it when a worker starts.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from celery.worker.control import Panel, inspect_command
from celery.worker.request import Request

from postroad.broker.transport import Transport

logger = logging.getLogger(__name__)

# The answer is one message, and the worker delivers nothing while it is built.
MAX_SCHEDULED = 1000
# The priority of ETA tasks in Celery's timer.
TIMER_PRIORITY = 6
EARLIEST = "0001-01-01T00:00:00+00:00"

_in_timer = Panel.data["scheduled"]


@inspect_command(alias="dump_schedule")  # type: ignore[untyped-decorator]  # Celery has no types
def scheduled(state: Any, **options: Any) -> list[dict[str, Any]]:
    """List of currently scheduled ETA/countdown tasks."""
    found: list[dict[str, Any]] = _in_timer(state, **options)
    consumer = state.consumer.task_consumer
    transport = consumer.channel.connection
    if isinstance(transport, Transport):
        for message in transport.consumption.delayed(consumer.channel, MAX_SCHEDULED):
            message.accept = consumer.accept
            try:
                request = Request(message, app=state.app, hostname=state.consumer.hostname)
                eta = request.eta and request.eta.isoformat()
                found.append({"eta": eta, "priority": TIMER_PRIORITY, "request": request.info()})
            except Exception as failure:  # noqa: BLE001 - hostile text may raise anything
                logger.info("scheduled_unreadable", extra={"reason": repr(failure)})
        # Tasks without an ETA wait for their rate limit.
        found.sort(key=lambda task: datetime.fromisoformat(task["eta"] or EARLIEST))
    return found
