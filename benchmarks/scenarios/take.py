"""Take 100 per commit with two workers, beside a visibility timeout and a plain keyed DELETE."""

from __future__ import annotations

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio, thousands
from benchmarks.shapes import (
    HSTORE,
    PAYLOAD,
    PLAIN_TABLE,
    VISIBILITY_TABLE,
    claim,
    fill_plain,
    fill_visibility,
)

WORKERS = 2
ROUNDS = 3
BATCH = 100
ROWS_PER_WORKER = 300_000

CLAIM_THEN_DELETE = (
    claim(BATCH)
    + " select array_agg(c.id) as ids, string_agg(c.data, '') as data from claimed c \\gset\n"
    "delete from visibility where id = any(:ids::bigint[]);"
)

# The workers' keys alternate by batch, as they do for workers that compete for the oldest.
KEYED_DELETE = f"""\
\\set batch :batch + 1
\\set first (:batch * {WORKERS} + :client_id) * {BATCH} + 1
delete from plain
where id = any(array(select generate_series(:first, :first + {BATCH - 1})::bigint))
returning id, data;"""


def run(lab: Lab) -> Findings:
    """Measure; every arm has the same number of rows filled in before its clock starts."""
    each = lab.scaled(ROWS_PER_WORKER / BATCH, 10)
    rows = each * BATCH * WORKERS
    lab.execute(PLAIN_TABLE)
    lab.execute(VISIBILITY_TABLE)

    def take(payload: str, literal: str, columns: str) -> float:
        queue = lab.new_queue(payload)
        array = f"array_fill('{literal}'::{payload}, array[1000])"
        lab.pgbench.times(
            f"select cardinality(mbus.postn_{queue}({array}));", clients=1, each=-(-rows // 1000)
        )
        lab.checkpoint()
        script = f"select {columns} from mbus.consumen_{queue}_by_default({BATCH});"
        rate = BATCH * lab.pgbench.times(script, clients=WORKERS, each=each)
        left = lab.number(f"select count(*) from mbus.consumen_{queue}_by_default({rows})")
        lab.drop_queue(queue)
        return rate * _share_taken(rows, left)

    def visibility() -> float:
        lab.execute("truncate visibility")
        lab.execute(fill_visibility(rows))
        lab.execute("vacuum analyze visibility")
        lab.checkpoint()
        rate = BATCH * lab.pgbench.times(CLAIM_THEN_DELETE, clients=WORKERS, each=each)
        return rate * _share_taken(rows, lab.number("select count(*) from visibility"))

    def keyed() -> float:
        lab.execute("truncate plain restart identity")
        lab.execute(fill_plain(rows))
        lab.execute("vacuum analyze plain")
        lab.checkpoint()
        rate = BATCH * lab.pgbench.times(KEYED_DELETE, clients=WORKERS, each=each, batch=-1)
        return rate * _share_taken(rows, lab.number("select count(*) from plain"))

    rates = interleave(
        lab,
        ROUNDS,
        {
            "visibility timeout": visibility,
            "take, text": lambda: take("text", PAYLOAD, "id, data"),
            "keyed DELETE": keyed,
            "take, text, all columns": lambda: take("text", PAYLOAD, "*"),
            "take, hstore": lambda: take("hstore", HSTORE, "id, data"),
        },
    )
    return Findings(_figures(rates), {"rates": rates, "rows": rows})


def _share_taken(rows: int, left: float) -> float:
    """Tell which part was taken: a batch is short when the other worker holds the rest."""
    if left > rows / 10:
        raise RuntimeError(f"{left:.0f} of {rows} rows were left")
    return 1 - left / rows


def _figures(rates: dict[str, list[float]]) -> list[Figure]:
    ours = thousands(median(rates, "take, text"))
    keyed = f"keyed DELETE {thousands(median(rates, 'keyed DELETE'))}"
    visibility = f"visibility timeout {thousands(median(rates, 'visibility timeout'))}"
    figures = [
        Figure(
            "take 100 per commit, 2 workers, text",
            ours,
            visibility,
            ratio(rates, "take, text", "visibility timeout"),
            "x",
            at_least(3),
        ),
        Figure(
            "the same",
            ours,
            keyed,
            ratio(rates, "take, text", "keyed DELETE"),
            "x",
            at_least(0.5),
        ),
    ]
    figures += [
        Figure(
            f"the same, {kind}",
            thousands(median(rates, f"take, {kind}")),
            keyed,
            ratio(rates, f"take, {kind}", "keyed DELETE"),
            "x",
        )
        for kind in ("text, all columns", "hstore")
    ]
    return figures


SCENARIO = Scenario(
    "take",
    "Take a hundred per commit",
    "pgbench, 2 workers of 300,000 messages each, 3 rounds. Every arm sends id and payload to the "
    "client (`all columns`: the whole message). The visibility timeout claims 100 by UPDATE, "
    "oldest first, and deletes them in a second transaction; the keyed DELETE knows its 100 keys.",
    ROUNDS * 5,
    run,
)
