"""Every plan that a call really used, also inside its functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from psycopg import Connection
from psycopg.errors import Diagnostic

SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "client_min_messages": "notice",
}


def used_plans(connection: Connection, query: str, *parameters: object) -> list[dict[str, Any]]:
    """Run a query and return the plans of all its statements, with the rows that passed."""
    plans: list[dict[str, Any]] = []

    def collect(notice: Diagnostic) -> None:
        _, found, text = (notice.message_primary or "").partition("plan:\n")
        if found:
            plans.append(json.loads(text))

    connection.execute("load 'auto_explain'")
    for name, value in SETTINGS.items():
        connection.execute("select set_config(%s, %s, true)", (name, value))
    connection.add_notice_handler(collect)
    try:
        connection.execute(query.encode(), parameters or None)
    finally:
        connection.remove_notice_handler(collect)
        connection.execute("set local auto_explain.log_min_duration = -1")
    assert plans
    return plans


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Go through all nodes of a plan."""
    waiting = [plan["Plan"]]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.get("Plans", [])


def touched(plan: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """Give kind, relation, rows and removed rows of each scan of a table."""
    for node in nodes(plan):
        if "Relation Name" in node and "Scan" in node["Node Type"]:
            loops = node["Actual Loops"]
            yield (
                node["Node Type"],
                node["Relation Name"],
                round(node["Actual Rows"] * loops),
                round(node.get("Rows Removed by Filter", 0) * loops),
            )
