"""Post one message per commit with eight clients, beside a plain INSERT."""

from __future__ import annotations

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import HSTORE, PAYLOAD, PLAIN_TABLE

CLIENTS = 8
ROUNDS = 5
SECONDS = 5


def run(lab: Lab) -> Findings:
    """Measure; the bar is the ratio to the plain INSERT."""
    lab.execute(PLAIN_TABLE)
    seconds = lab.scaled(SECONDS)

    def plain() -> float:
        lab.execute("truncate plain")
        lab.checkpoint()
        script = f"insert into plain (data) values ('{PAYLOAD}');"
        return lab.pgbench.for_seconds(script, clients=CLIENTS, seconds=seconds)

    def post(payload: str, literal: str) -> float:
        queue = lab.new_queue(payload)
        lab.checkpoint()
        script = f"select mbus.post_{queue}('{literal}');"
        rate = lab.pgbench.for_seconds(script, clients=CLIENTS, seconds=seconds)
        lab.drop_queue(queue)
        return rate

    rates = interleave(
        lab,
        ROUNDS,
        {
            "plain INSERT": plain,
            "post, text": lambda: post("text", PAYLOAD),
            "post, hstore": lambda: post("hstore", HSTORE),
        },
    )
    beside = f"plain INSERT {thousands(median(rates, 'plain INSERT'))}"
    text, hstore = (ratio(rates, f"post, {kind}", "plain INSERT") for kind in ("text", "hstore"))
    return Findings(
        [
            Figure(
                "post 1 per commit, 8 clients, text",
                thousands(median(rates, "post, text")),
                beside,
                text,
                "x",
                at_least(0.7),
            ),
            Figure(
                "the same, hstore", thousands(median(rates, "post, hstore")), beside, hstore, "x"
            ),
        ],
        {"rates": rates},
    )


SCENARIO = Scenario(
    "post_single",
    "Post one per commit",
    "pgbench, 8 clients, 5 rounds of 5 s per arm; a fresh queue and an emptied table each round.",
    ROUNDS * 3,
    run,
)
