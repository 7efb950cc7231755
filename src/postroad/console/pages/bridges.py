"""Bridges: rate, lag and problems of each."""

from __future__ import annotations

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from postroad.bridge.resources import DRAIN, PAUSE, RESUME, SHARDS, STATUS
from postroad.console.frame import page
from postroad.console.markup import Markup, address, element, link
from postroad.console.parts.resources import show_resource
from postroad.console.view import View

COLUMNS = ("name", "state", "source", "target", "lag", "lag_age", "per_second", "refused",
           "problem")  # fmt: skip
BRIDGE_ADVICE = "postroad bridge add orders --to 'host=… dbname=…'"


@page("/bridges", "bridges", "nav.bridges")
async def _bridges(view: View) -> None:
    lists = ((STATUS, COLUMNS, BRIDGE_ADVICE), (SHARDS, (), ""))
    for resource, names, advice in lists:
        if resource is SHARDS and not view.context.components.bridge_addresses.shards:
            continue
        await show_resource(
            view,
            resource,
            names=names,
            cells={
                "source": lambda row: _queue(row["source"], row["queue"]),
                "target": lambda row: _queue(row["target"], row["queue_at_target"]),
            },
            advice=element("code", advice),
            row_actions=() if resource is SHARDS else (PAUSE, DRAIN, RESUME),
            name="" if resource is STATUS else "shard_",
        )


def place_name(place: str) -> str:
    """Return the name of an end of a bridge: that in the settings, or that of the database."""
    try:
        facts = conninfo_to_dict(place)
    except ProgrammingError:
        return place
    return str(facts.get("dbname") or place)


def _queue(place: str, queue: str) -> Markup | str:
    if place == "home":
        return link(queue, address("bus", "queues", queue), class_="way")
    return element("span", f"{place_name(place)}/{queue}", title=place, class_="way")
