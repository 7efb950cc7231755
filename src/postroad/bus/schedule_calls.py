"""Calls for schedules: messages that the bus posts at planned times."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from postroad.bus import parameters, rows
from postroad.bus import payload as payloads
from postroad.bus.call import Call, OfQueue, sql
from postroad.bus.hstore import Hstore

Missed: TypeAlias = Literal["skip", "once", "all"]


def schedule(
    name: str,
    timing: str,
    queue: str,
    data: object,
    timezone: str = "UTC",
    missed: Missed = "once",
    headers: Hstore | None = None,
    properties: Hstore | None = None,
) -> OfQueue[datetime | None]:
    """Post a message at planned times; return the next one, None while it is paused.

    `timing` is a cron expression (`0 3 * * *`, `@daily`) or an interval (`15 minutes`). A schedule
    of this name is replaced. `missed` decides about runs that are late: post one message for all,
    for those of the last minute (skip), or each of the last 24 hours. Raises QueueNotFound,
    WrongPayload, InvalidArgument, RoleMissing.
    """
    given = (name, timing, queue, timezone, missed)
    more = (parameters.hstore("headers", headers), parameters.hstore("properties", properties))
    text = (
        "select mbus.schedule(name => %s, timing => %s, qname => %s, timezone => %s, missed => %s,"
        " headers => %s, properties => %s, data => %s)"
    )
    return OfQueue(
        queue,
        lambda payload: Call(
            text, (*given, *more, payloads.text(payload, data)), rows.value, queue
        ),
    )


def unschedule(name: str) -> Call[bool]:
    """Remove a schedule; posted messages stay. Returns False if there is none."""
    return sql(bool, "unschedule", name=name)


def pause_schedule(
    name: str, reason: str | None = None, paused_by: str | None = None
) -> Call[bool]:
    """Stop posting the runs of a schedule until it is resumed; return False if it was paused.

    Raises ScheduleNotFound.
    """
    return sql(bool, "pause_schedule", name=name, reason=reason, paused_by=paused_by)


def resume_schedule(name: str) -> Call[bool]:
    """End the pause of a schedule; runs that were due in that time are skipped.

    Returns False if it was not paused. Raises ScheduleNotFound.
    """
    return sql(bool, "resume_schedule", name=name)


def run_now(name: str) -> Call[str]:
    """Post the message of a schedule now; return its iid. Planned runs are not affected.

    In the caller's transaction when the bus has the caller's connection. Raises ScheduleNotFound.
    """
    return sql(str, "run_now", name=name)
