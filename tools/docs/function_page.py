"""The page of all public SQL functions."""

from __future__ import annotations

from tools.docs.error_page import leaves
from tools.docs.markdown import anchor, head, prose
from tools.docs.sql_source import Function, comment, errors, public

INTRODUCTION = """
Every public function of schema `mbus`: its signature, its contract, and the
[errors](errors.md) that it can raise. Functions with `<q>` or `<c>` in their names exist once per
queue `<q>`, or per consumer `<c>` of it; `T` is the type that the queue carries: `hstore`, `jsonb`,
`text` or `bytea`. For a queue that does not carry `hstore` the row type is
`qt_model_jsonb` and so on, see [row types](sql-tables.md#row-types).

Call them with named arguments (`mbus.post(qname => 'orders', data => 'id=>1')`): names are
stable, positions may change. Functions whose names begin with an underscore are internal.
"""

STORAGE = "[how storage works](../concepts/storage.md)"

TOPICS: dict[str, tuple[str, ...]] = {
    "Queues and consumers": (
        "create_queue", "alter_queue", "drop_queue",
        "create_consumer", "alter_consumer",
        "limit_consumer",
        "pause",
        "resume", "drop_consumer",
        "create_view",
    ),
    "Schedules": (
        "schedule", "unschedule", "pause_schedule", "resume_schedule", "run_now", "next_run",
    ),
    "Posting": ("post", "post_<q>", "postn_<q>", "get_iid"),
    "Taking in a transaction": (
        "consume", "consume_<q>_by_<c>", "consumen_<q>_by_<c>", "batch_<q>_by_<c>",
        "take", "take_<q>", "take_from_<q>_by_<c>", "peek_<q>",
    ),
    "Leases": (
        "lease_<q>_by_<c>", "leasen_<q>_by_<c>", "ack", "ackn", "ackn_<q>_by_<c>", "nack",
        "extend", "extendn", "releasen",
    ),
    "Sagas": (
        "create_saga", "cancel_saga", "abort_saga", "retry_saga", "settle_saga_step", "sagas",
    ),
    "Request and reply": ("request", "replies", "reply", "replyn_hstore", "replyn_jsonb",
                          "replyn_text", "replyn_bytea", "reply_queue"),
    "Temporary queues and consumers": (
        "create_temporary_queue", "create_temporary_consumer", "consume_temporary",
        "consume_temporary_jsonb", "consume_temporary_text", "consume_temporary_bytea",
        "clear_tempq",
    ),
    "From queue to queue": ("create_trigger", "drop_trigger"),
    "Ad hoc": ("dyn_consume", "create_run_function", "run_on_<q>"),
    "Failures": ("reject", "give_back", "redrive", "dead_groups", "redrive_dead",
                 "move_dead", "purge_dead", "redrive_edited", "dead_reasons"),
    "Traces": ("trace_headers", "trace_headers_of", "follow_trace"),
    "Browsing and removing messages": ("browse", "history", "find", "replay", "count_replay",
                                     "stop_replay", "continue_replay", "waits", "move", "purge"),
    "Operating": ("maintain", "is_restored", "after_restore", "clear_queue_<q>", "notify",
                  "positions", "measure", "report_worker", "traffic", "latency", "now"),
}  # fmt: skip


def page() -> str:
    """Return the page."""
    found = public()
    topics = dict(TOPICS)
    listed = {name for names in topics.values() for name in names}
    if rest := tuple(name for name in found if name not in listed):
        topics["Others"] = rest
    parts = [head("SQL functions", INTRODUCTION)]
    for topic, names in topics.items():
        parts.append(f"## {topic}\n")
        parts.extend(_entry(found[name]) for name in names if name in found)
    return "\n".join(parts)


def _signature(overloads: list[Function]) -> str:
    """Return one signature; lines in which overloads differ name all their types."""
    rows = zip(*(one.signature.splitlines() for one in overloads), strict=True)
    merged = []
    for row in rows:
        kinds = [line.rstrip(",").split(" ")[-1] for line in dict.fromkeys(row)]
        comma = "," if row[0].endswith(",") else ""
        merged.append(row[0].removesuffix(kinds[0] + comma) + " | ".join(kinds) + comma)
    return "\n".join(merged)


def _entry(overloads: list[Function]) -> str:
    first = overloads[0]
    lines = [f"### `{first.name}`\n", "```text", _signature(overloads), "```\n"]
    said = [line for line in comment(first.name) if not line.startswith("Errors:")]
    text = prose(said).strip().replace("see README.md", f"see {STORAGE}")
    lines.append(text + "\n")
    if codes := errors(first.name):
        known = {leaf.code for leaf in leaves()}
        links = (f"[`{one}`](errors.md#{anchor(one)})" if one in known else one for one in codes)
        lines.append(f"Errors: {', '.join(links)}.\n")
    return "\n".join(lines)
