"""Post to three consumers, one of them with a selector, beside a queue with one consumer."""

from __future__ import annotations

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import PAYLOAD

ROUNDS = 5
SECONDS = 3
BATCH = 1000
PROPERTIES = "properties => 'STATE=>DONE'"


def run(lab: Lab) -> Findings:
    """Measure single posts and posts by a thousand; every message matches the selector."""
    seconds = lab.scaled(SECONDS)

    def post(consumers: int, batch: int) -> float:
        queue = lab.new_queue()
        if consumers == 3:
            lab.execute(f"select mbus.create_consumer('{queue}', 'billing')")
            lab.execute(
                f"select mbus.create_consumer('{queue}', 'done',"
                " $$(t.properties->'STATE')='DONE'$$)"
            )
        lab.checkpoint()
        if batch == 1:
            script = f"select mbus.post_{queue}('{PAYLOAD}', {PROPERTIES});"
        else:
            array = f"array_fill('{PAYLOAD}'::text, array[{batch}])"
            script = (
                f"select cardinality(mbus.postn_{queue}({array},"
                " properties => array['STATE=>DONE'::hstore]));"
            )
        clients = 8 if batch == 1 else 2
        rate = batch * lab.pgbench.for_seconds(script, clients=clients, seconds=seconds)
        lab.drop_queue(queue)
        return rate

    rates = interleave(
        lab,
        ROUNDS,
        {
            "one consumer, by 1": lambda: post(1, 1),
            "three consumers, by 1": lambda: post(3, 1),
            "one consumer, by 1,000": lambda: post(1, BATCH),
            "three consumers, by 1,000": lambda: post(3, BATCH),
        },
    )
    return Findings(
        [
            Figure(
                f"three consumers, one with a selector: post {how}",
                thousands(median(rates, f"three consumers, {batch}")),
                f"one consumer {thousands(median(rates, f'one consumer, {batch}'))}",
                ratio(rates, f"three consumers, {batch}", f"one consumer, {batch}"),
                "x",
                at_least(0.5),
            )
            for batch, how in (
                ("by 1", "1 per commit, 8 clients"),
                ("by 1,000", "1,000 per call, 2 clients"),
            )
        ],
        {"rates": rates},
    )


SCENARIO = Scenario(
    "fanout",
    "Three consumers",
    "pgbench, 5 rounds of 3 s per arm, a fresh queue each; the same statement with one property in "
    "both arms; every message matches the selector, so three copies are made.",
    ROUNDS * 4,
    run,
)
