"""The hot statements go by index, whatever the statistics say and however long the queue is."""

from __future__ import annotations

import re

import pytest
from psycopg import Connection

from tests.sql.calls import lease, nobody_maintains, one, post, post_many, take
from tests.sql.plans import nodes, touched, used_plans

pytestmark = pytest.mark.both_versions

# The tables of a queue live too briefly to be analyzed; the shared ones are, once they have grown.
RING = re.compile(r"^q[tlc]\$")
WAITING = re.compile(r"^(leased|delayed|dmq|dedup)$")
# A loop over a query in PL/pgSQL fetches so many rows at first.
PREFETCHED = 10
BACKLOG = 20000


@pytest.fixture(params=["direct", "fanout", "grouped"])
def long(request: pytest.FixtureRequest, bus: Connection) -> Connection:
    """Give a queue with a backlog, in each of its shapes."""
    if request.param == "fanout":
        bus.execute("select mbus.create_consumer('q', 'second')")
    if request.param == "grouped":
        post(bus, 0, "group=>a")
        take(bus)
    post_many(bus, BACKLOG)
    lease(bus, 2000)
    # As maintenance does, which cannot do it in a transaction that has posted.
    bus.execute("select mbus._settle(q, pg_sequence_last_value(q.position), 0) from mbus.queue q")
    bus.execute(
        "insert into mbus.delayed (queue_id, due_at, number, added, expires, data_hstore)"
        " select q.id, '2100-01-01', n, mbus.now(), '2100-01-01', 'n=>1'"
        " from mbus.queue q, generate_series(1, 2000) n"
    )
    bus.execute(
        "insert into mbus.dedup (queue_id, key, number, until)"
        " select q.id, n, n, '2100-01-01' from mbus.queue q, generate_series(1, 2000) n"
    )
    return bus


CALLS = {
    "post": ("select mbus.post_q('n=>1')", 1),
    "post with headers": ("select mbus.post_q('n=>1', 'dedup_key=>x')", 1),
    "postn": ("select mbus.postn_q(array['n=>1', 'n=>2']::hstore[])", 2),
    "consume": ("select * from mbus.consume_q_by_default()", 1),
    "consumen": ("select * from mbus.consumen_q_by_default(100)", 100),
    "lease": ("select * from mbus.lease_q_by_default(100)", 100),
    "take": ("select * from mbus.take(%(iid)s)", 1),
    "take_from": ("select * from mbus.take_from_q_by_default(%(iid)s)", 1),
    "peek": ("select mbus.peek_q(%(iid)s)", 1),
    "peek at any": ("select mbus.peek_q()", 1),
    "reject": ("select mbus.reject('q', 'default', %(iid)s)", 1),
    "ack": ("select mbus.ack(%(leased)s, %(token)s)", 1),
    "nack": ("select mbus.nack(%(leased)s, %(token)s)", 1),
    "extend": ("select mbus.extend(%(leased)s, %(token)s)", 1),
    "ackn": ("select mbus.ackn(array[%(leased)s], array[%(token)s::bigint])", 1),
}


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_no_call_scans_or_sorts_a_long_table(long: Connection, is_analyzed: bool) -> None:
    ((_, leased, token, _),) = lease(long)
    nobody_maintains(long)
    if is_analyzed:
        long.execute("analyze")
    for name, (call, amount) in CALLS.items():
        long.execute("savepoint before")
        iid = one(
            long, "select mbus._iid('q', pg_sequence_last_value(position) - 50) from mbus.queue"
        )
        filled = call.replace("%(iid)s", f"'{iid}'").replace("%(leased)s", f"'{leased}'")
        for plan in used_plans(long, filled.replace("%(token)s", str(token))):
            if "leased_until <= $2" in plan["Query Text"]:
                continue  # reads all leases, which a session does once a second without maintenance
            for kind, table, count, removed in touched(plan):
                if RING.search(table) or (is_analyzed and WAITING.search(table)):
                    assert kind != "Seq Scan", (name, plan)
                    assert count + removed <= 2 * amount + PREFETCHED, (name, plan)
            for node in nodes(plan):
                if "Sort" in node["Node Type"]:
                    assert node["Actual Rows"] <= amount + PREFETCHED, (name, plan)
        long.execute("rollback to before")


def test_consume_walks_the_index_of_ids(bus: Connection) -> None:
    post_many(bus, BACKLOG)
    plans = used_plans(bus, "select * from mbus.consumen_q_by_default(10)")
    used = [
        (node["Index Name"], node["Index Cond"])
        for plan in plans
        for node in nodes(plan)
        if node["Node Type"] == "Index Scan"
    ]
    assert ("qt$q$0_id", "(id >= $9)") in [
        (name, re.sub(r"\$\d+", "$9", condition)) for name, condition in used
    ]


def test_a_take_reads_the_log_of_a_fanout_queue_in_one_scan(bus: Connection) -> None:
    bus.execute("select mbus.create_consumer('q', 'second')")
    post_many(bus, BACKLOG)
    scans = [
        (node["Actual Loops"], node["Actual Rows"])
        for plan in used_plans(bus, "select * from mbus.consumen_q_by_default(100)")
        for node in nodes(plan)
        if node.get("Relation Name") == "ql$q$0" and node["Actual Rows"] > 0
    ]
    assert scans == [(1, 100)]


def test_maintenance_and_status_do_not_scan_a_long_table(long: Connection) -> None:
    long.execute("analyze")
    long.execute("select setval('mbus.tick', 1)")  # each 64th run searches everything
    for call in ("select * from mbus.maintain('q')", "select * from mbus.status"):
        for plan in used_plans(long, call):
            for kind, table, count, removed in touched(plan):
                if RING.search(table) or (WAITING.search(table) and "maintain" in call):
                    # An index is no quicker for a table that is known to be empty.
                    assert kind != "Seq Scan" or count + removed == 0, (call, plan)
                    assert count <= 10000, (call, plan)


def test_no_call_is_compiled(bus: Connection) -> None:
    """A plan whose estimate is far too high is compiled first, which takes longer than the call."""
    iid = post(bus, 1)
    bus.execute("set local jit = on")
    for call in (
        f"select mbus.peek_q('{iid}')",
        f"select mbus.reject('q', 'default', '{iid}', '0')",
        f"select mbus.take('{iid}')",
        "select * from mbus.consume_q_by_default()",
        "select * from mbus.lease_q_by_default()",
        "select * from mbus.maintain('q')",
        "select * from mbus.maintain()",
        "select * from mbus.status",
        "select * from mbus.queues",
        "select * from mbus.consumers",
        "select * from mbus.dead",
        "select mbus.clear_queue_q()",
    ):
        for plan in used_plans(bus, call):
            assert plan["Plan"]["Total Cost"] < 100_000, (call, plan)
