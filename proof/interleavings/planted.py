"""Bugs that the explorer must find: functions without one of their locks or conditions."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

__all__ = ["PLANTED", "Planted", "plant"]


@dataclass(frozen=True)
class Planted:
    """A text in the functions of a schema, and what replaces it."""

    name: str
    scenario: str
    old: str
    new: str
    schema: str = "mbus"


PLANTED = (
    Planted(
        "an ack does not check the end of the lease",
        "lease_end",
        "s.leased_until > v_now",
        "true",
    ),
    Planted(
        "a take does not check whether the group is leased",
        "groups_lease",
        "case when mbus._is_group_held(",
        "case when false and mbus._is_group_held(",
    ),
    Planted(
        "a take does not read older slots again before it takes of a group from the next",
        "groups_rotation",
        "if v_is_later and v_row.name is not null then",
        "if false then",
    ),
    Planted(
        "the hint passes messages whose transactions are open",
        "rotation",
        "and not (mark -> 'open') ?| now_open",
        "",
    ),
    Planted(
        "a second key replaces the first",
        "dedup",
        "where d.until <= p_now",
        "",
    ),
    Planted(
        "a consumed predecessor does not release its successors",
        "consume_after",
        "where w.queue_id = p_queue_id and w.number = any (p_numbers) and w.done_by is null",
        "where false",
    ),
    Planted(
        "retained segments are dropped before their time",
        "retention",
        "s.retained_at <= mbus.now() - q.retain",
        "true",
    ),
    Planted(
        "maintenance does not lock the schedule",
        "schedule",
        "for no key update skip locked",
        "",
    ),
    Planted(
        "the ledger does not lock the origin",
        "ledger",
        "perform pg_advisory_xact_lock(bridge._lock_class(), v_origin);",
        "",
        "bridge",
    ),
    Planted(
        "the tables of ids change their roles under a reader",
        "ledger_words",
        "lock table bridge.foreign_0, bridge.foreign_1 in row exclusive mode;",
        "",
        "bridge",
    ),
    Planted(
        "a process that is ready is cancelled when its time is up",
        "marker",
        "if v_process.state = 'STARTED' then\n    perform exchange._abort",
        "if true then\n    perform exchange._abort",
        "exchange",
    ),
)


def plant(dsn: str, bug: Planted) -> int:
    """Replace the text in all functions that have it, and return how many those are."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "select pg_get_functiondef(p.oid) from pg_proc p"
            " join pg_namespace n on n.oid = p.pronamespace"
            " where n.nspname = %s and p.prokind = 'f' and strpos(p.prosrc, %s) > 0",
            (bug.schema, bug.old),
        ).fetchall()
        for (text,) in rows:
            connection.execute(text.replace(bug.old, bug.new).encode())
        return len(rows)
