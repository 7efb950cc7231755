"""What retention and business keys cost, and how fast a long history is searched and dropped."""

from __future__ import annotations

import random
import time

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.rounds import Rates, interleave, median, ratio, thousands
from benchmarks.shapes import PAYLOAD
from benchmarks.steady import percentile

ROUNDS = 5
SECONDS = 3
BATCH = 1000
TAKEN = 200_000
RETAINED = 10_000_000
SEARCHES = 200
DAYS = 10

OFF, ON, TRACKED = "not retained", "retained", "retained and tracked"
SETTINGS = {
    OFF: "",
    ON: "retain => '30 days'",
    TRACKED: "retain => '30 days', track => 'order_id'",
}
LOADS = {
    "post 1": "post 1 per commit, 8 clients",
    f"post {BATCH:,}": f"post {BATCH:,} per call, 2 clients",
    "take 100": "take 100 per commit, 2 workers",
}
# The keys of the long history, above those of the other messages.
FIRST_KEY = 1_000_000
# Arrays of messages that are made before the measurement, with a business key each.
ARRAYS = 50
PREPARED = f"""
create sequence order_ids start {FIRST_KEY};
create table prepared (id integer primary key, one hstore not null, many hstore[] not null);
alter table prepared alter column many set storage external;
insert into prepared
select m.id, m.many[1], m.many
from (select a as id, array(
        select hstore(array['order_id', 'body'], array[(a * {BATCH} + n)::text, '{PAYLOAD}'])
        from generate_series(1, {BATCH}) n) as many
      from generate_series(1, {ARRAYS}) a) m
"""
ANY = f"\\set id random(1, {ARRAYS})\n"


def run(lab: Lab) -> Findings:
    """Measure posts and takes with and without retention, then a long history."""
    for statement in PREPARED.split(";\n"):
        lab.execute(statement)
    times: Rates = {}
    rates = interleave(
        lab,
        ROUNDS,
        {
            f"{setting}, {load}": lambda setting=setting, load=load: _load(
                lab, setting, load, times.setdefault(f"{setting}, {load}", [])
            )
            for load in LOADS
            for setting in SETTINGS
        },
    )
    figures = [
        Figure(
            f"{setting}: {text}",
            thousands(median(rates, f"{setting}, {load}")),
            f"{OFF} {thousands(median(rates, f'{OFF}, {load}'))}; server time "
            f"{ratio(times, f'{setting}, {load}', f'{OFF}, {load}'):.2f}x",
            ratio(rates, f"{setting}, {load}", f"{OFF}, {load}"),
            "x",
            at_least(0.9),
        )
        for load, text in LOADS.items()
        for setting in (ON, TRACKED)
    ]
    beside = _history(lab, figures)
    return Findings(figures, {"rates": rates, "server_milliseconds": times, "history": beside})


def _load(lab: Lab, setting: str, load: str, times: list[float]) -> float:
    """Return messages a second of one load on a queue of its own; note the server's time."""
    queue = _queue(lab, setting)
    seconds = lab.scaled(SECONDS)
    many = f"{ANY}select cardinality(mbus.postn_{queue}(many)) from prepared where id = :id;"
    taken = lab.scaled(TAKEN / 2 / BATCH, 20)
    if load == "take 100":
        lab.pgbench.times(many, clients=2, each=taken)
    lab.checkpoint()
    before = lab.server_milliseconds()
    if load == "post 1":
        one = f"{ANY}select mbus.post_{queue}(one) from prepared where id = :id;"
        rate = lab.pgbench.for_seconds(one, clients=8, seconds=seconds)
        messages = rate * seconds
    elif load == "take 100":
        take = f"select count(data) from mbus.consumen_{queue}_by_default(100);"
        each = taken * BATCH // 100
        rate = 100 * lab.pgbench.times(take, clients=2, each=each)
        messages = each * 2 * 100
    else:
        rate = BATCH * lab.pgbench.for_seconds(many, clients=2, seconds=seconds)
        messages = rate * seconds
    # The server adds up ticks of 10 ms.
    times.append(max(10.0, lab.server_milliseconds() - before) / messages * 1000)
    lab.drop_queue(queue)
    return rate


def _history(lab: Lab, figures: list[Figure]) -> dict[str, object]:
    """Measure what a long history changes, and what is done with it."""
    amount = lab.scaled(RETAINED, 200_000)
    full, empty = _queue(lab, TRACKED), _queue(lab, TRACKED)
    lab.report(f"retaining {amount:,}")
    fill = (
        f"select cardinality(mbus.postn_{full}(array(select hstore(array['order_id', 'body'],"
        f" array[nextval('order_ids')::text, '{PAYLOAD}']) from generate_series(1, {BATCH}))));\n"
        f"select count(*) from mbus.consumen_{full}_by_default({BATCH});"
    )
    # Some more, because the last ones are still on the ring.
    lab.pgbench.times(fill, clients=2, each=amount // BATCH * 101 // 200)
    of_queue = f"from mbus.retained r join mbus.queue q on q.id = r.queue_id and q.name = '{full}'"
    retained = lab.number(f"select sum(messages) {of_queue}")
    segments = lab.number(f"select count(*) {of_queue}")
    lab.execute("analyze")

    def hot(queue: str) -> float:
        lab.checkpoint()
        script = (
            f"{ANY}select cardinality(mbus.postn_{queue}(many[1:100])) from prepared"
            f" where id = :id;\nselect count(data) from mbus.consumen_{queue}_by_default(100);"
        )
        return 100 * lab.pgbench.for_seconds(script, clients=2, seconds=lab.scaled(SECONDS))

    rates = interleave(lab, ROUNDS, {"long": lambda: hot(full), "empty": lambda: hot(empty)})

    lab.report("searching")
    # The same keys in every run.
    chosen = random.Random(1)
    before = lab.session_milliseconds()
    searches = [_search(lab, FIRST_KEY + chosen.randrange(amount // 2)) for _ in range(SEARCHES)]
    server = (lab.session_milliseconds() - before) / SEARCHES
    p95 = percentile(searches, 0.95)

    # Committed together, so that the maintenance beside it finds nothing to drop.
    with lab.connection.transaction():
        stored = lab.number(f"select count(*) {of_queue}")
        lab.execute(
            "update mbus.retained r set retained_at = mbus.now() - interval '30 days'"
            f" + interval '1 day' * (d.day - 1) from (select r.id, ntile({DAYS}) over (order by"
            f" r.first_id) as day {of_queue}) d where d.id = r.id"
        )
        began = time.perf_counter()
        lab.execute("select mbus._drop_retained()")
        left = lab.number(f"select count(*) {of_queue}")
    dropped = time.perf_counter() - began
    figures += [
        Figure(
            f"post and take 100 beside {retained:,.0f} retained messages, 2 clients",
            thousands(median(rates, "long")),
            f"empty history {thousands(median(rates, 'empty'))}",
            ratio(rates, "long", "empty"),
            "x",
            at_least(0.9),
        ),
        Figure(
            f"the oldest day of {DAYS} is dropped in",
            f"{dropped:.3f} s, {stored - left:.0f} of {stored:.0f} segments",
            "",
            dropped,
            " s",
            at_most(1),
        ),
        Figure(
            f"mbus.find by business key in {retained:,.0f} messages, p95 of {SEARCHES}",
            f"{p95:.1f} ms (median {percentile(searches, 0.5):.1f} ms)",
            f"server time {server:.1f} ms",
            p95,
            " ms",
            at_most(100),
        ),
    ]
    return {
        "retained": retained,
        "segments": segments,
        "hot_path": rates,
        "find_ms": searches,
        "find_server_ms": server,
        "dropped_seconds": dropped,
    }


def _search(lab: Lab, key: int) -> float:
    """Find an order, and return how many milliseconds it took."""
    began = time.perf_counter()
    rows = lab.connection.execute("select iid from mbus.find(%s)", ([str(key)],)).fetchall()
    took = time.perf_counter() - began
    if len(rows) != 1:
        raise RuntimeError(f"order {key} was found {len(rows)} times")
    return took * 1000


def _queue(lab: Lab, setting: str) -> str:
    queue = lab.new_queue("hstore")
    if SETTINGS[setting]:
        lab.execute(f"select mbus.alter_queue('{queue}', {SETTINGS[setting]})")
    return queue


SCENARIO = Scenario(
    "retention",
    "Retention, and a long history",
    "pgbench, 5 rounds of 3 s per arm (takes: 200,000 messages), a fresh queue with payload "
    "hstore each; the messages are created in advance and have a business key in every arm. "
    "Server time is the CPU time of the sessions, per message. Then 10,000,000 messages are "
    "posted and taken with retention and track: two clients post and take 100 each, alternately "
    "on this queue and on one without history; 200 random keys are searched, one after the other; "
    "the segments are spread over 10 days, and the oldest day is dropped in one transaction.",
    ROUNDS * 11 + 2,
    run,
)
