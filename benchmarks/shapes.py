"""The shapes that the bus is compared with, written as well as their idea allows.

- *plain table*: a bigint key and the payload, nothing of a queue.
- *visibility timeout*: claim by moving `visible_at` into the future, work, delete in a second
  transaction. A crashed worker's message comes back by itself, as with a lease.
"""

from __future__ import annotations

__all__ = [
    "HSTORE",
    "PAYLOAD",
    "PLAIN_TABLE",
    "VISIBILITY_TABLE",
    "claim",
    "fill_plain",
    "fill_visibility",
]

# 200 bytes as text; as hstore the same amount in one pair.
PAYLOAD = ("order created 4711 total 99.95 " * 7)[:200]
HSTORE = f'body=>"{PAYLOAD[:188]}"'

PLAIN_TABLE = """
create table plain (id bigint generated always as identity primary key, data text not null)
"""

VISIBILITY_TABLE = """
create table visibility (
  id bigint generated always as identity primary key,
  added timestamptz not null default clock_timestamp(),
  visible_at timestamptz not null default clock_timestamp(),
  attempts integer not null default 0,
  data text not null);
create index visibility_visible_at_idx on visibility (visible_at)
"""


def fill_plain(rows: int) -> str:
    """Fill the plain table, with keys from 1."""
    return f"insert into plain (data) select '{PAYLOAD}' from generate_series(1, {rows})"


def fill_visibility(rows: int) -> str:
    """Fill the visibility-timeout table."""
    return f"insert into visibility (data) select '{PAYLOAD}' from generate_series(1, {rows})"


def claim(amount: int) -> str:
    """Claim the oldest visible messages: the first of the shape's two transactions."""
    return (
        "with oldest as ("
        " select v.id from visibility v where v.visible_at <= clock_timestamp()"
        f" order by v.id limit {amount} for update skip locked), claimed as ("
        " update visibility v set visible_at = clock_timestamp() + interval '30 seconds',"
        " attempts = v.attempts + 1 from oldest o where v.id = o.id"
        " returning v.id, v.added, v.data)"
    )
