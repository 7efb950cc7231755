"""Post a thousand messages per call, beside a plain multi-row INSERT of the same array."""

from __future__ import annotations

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import HSTORE, PAYLOAD, PLAIN_TABLE

CLIENTS = 2
ROUNDS = 5
SECONDS = 3
BATCH = 1000
RATE_ENOUGH = 300_000


def run(lab: Lab) -> Findings:
    """Measure; the bar is the ratio, or a rate that is enough whatever the ratio."""
    lab.execute(PLAIN_TABLE)
    seconds = lab.scaled(SECONDS)

    def plain() -> float:
        lab.execute("truncate plain")
        lab.checkpoint()
        script = (
            "insert into plain (data)"
            f" select * from unnest(array_fill('{PAYLOAD}'::text, array[{BATCH}]));"
        )
        return BATCH * lab.pgbench.for_seconds(script, clients=CLIENTS, seconds=seconds)

    def post(payload: str, literal: str) -> float:
        queue = lab.new_queue(payload)
        lab.checkpoint()
        array = f"array_fill('{literal}'::{payload}, array[{BATCH}])"
        script = f"select cardinality(mbus.postn_{queue}({array}));"
        rate = BATCH * lab.pgbench.for_seconds(script, clients=CLIENTS, seconds=seconds)
        lab.drop_queue(queue)
        return rate

    rates = interleave(
        lab,
        ROUNDS,
        {
            "plain INSERT": plain,
            "postn, text": lambda: post("text", PAYLOAD),
            "postn, hstore": lambda: post("hstore", HSTORE),
        },
    )
    text, hstore = (ratio(rates, f"postn, {kind}", "plain INSERT") for kind in ("text", "hstore"))
    rate = median(rates, "postn, text")
    beside = f"plain multi-row INSERT {thousands(median(rates, 'plain INSERT'))}"
    # Either is enough, so the ratio is judged unless only the rate clears its bar.
    by_rate = text < 0.7 and rate >= RATE_ENOUGH
    return Findings(
        [
            Figure(
                "post 1,000 per call, 2 clients, text",
                f"{thousands(rate)} ({text:.2f}x)",
                beside,
                rate if by_rate else text,
                " msg/s" if by_rate else "x",
                at_least(RATE_ENOUGH if by_rate else 0.7),
            ),
            Figure(
                "the same, hstore", thousands(median(rates, "postn, hstore")), beside, hstore, "x"
            ),
        ],
        {"rates": rates},
    )


SCENARIO = Scenario(
    "post_bulk",
    "Post a thousand per call",
    "pgbench, 2 clients, 5 rounds of 3 s per arm; both arms get the same array of 1,000 payloads. "
    "The bar is 0.7 of the plain INSERT or 300,000 messages a second.",
    ROUNDS * 3,
    run,
)
