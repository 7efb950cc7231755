"""The sizing table of docs/concepts/choosing.md follows from benchmarks and a real backlog."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from psycopg import Connection

from tests.docs.snippets import DOCS

PAGE = (DOCS / "concepts" / "choosing.md").read_text(encoding="utf-8")
RESULTS = json.loads((DOCS / "benchmarks" / "results.json").read_text(encoding="utf-8"))
MESSAGES = 20_000


def figure(scenario: str, what: str) -> float:
    """Return the rate that a scenario of the benchmarks reports."""
    found: list[dict[str, Any]] = RESULTS["scenarios"][scenario]["figures"]
    text = next(each["ours"] for each in found if each["what"].startswith(what))
    number, thousand = re.match(r"([\d.,]+)(k?)", text).groups()  # type: ignore[union-attr]
    return float(number.replace(",", "")) * (1000 if thousand else 1)


def percent_of_a_core(*rates: float) -> float:
    """Return what 1,000 messages a second cost at most, if a rate kept every core busy."""
    cores = int(RESULTS["machine"]["cores"])
    return sum(cores * 1000 / rate * 100 for rate in rates)


def stated(row: str) -> tuple[float, float]:
    """Return the two figures of a row: percent of a core, and MB of log a second or nothing."""
    found = re.search(rf"^\| {re.escape(row)}[^|]* \| ([\d.]+) %[^|]* \| ([\d.]*)", PAGE, re.M)
    assert found is not None, row
    return float(found[1]), float(found[2] or 0)


POST, POST_MANY = figure("post_single", "post 1 per"), figure("post_bulk", "post 1,000")
TAKE = figure("take", "take 100")
WORKER, LEASES = figure("worker", "AsyncWorker, empty"), figure("worker", "the same, leases")
LOG = RESULTS["scenarios"]["wal"]["raw"]["bytes"]["bus"]


@pytest.mark.parametrize(
    ("row", "rates", "log_bytes"),
    [
        ("1,000 messages/s, posted and taken", (POST_MANY, TAKE), LOG["50"]),
        ("1,000 messages/s, posted one by one", (POST, WORKER), LOG["1"]),
        ("1,000 jobs/s by lease", (POST_MANY, LEASES), 641),
    ],
)
def test_a_load_costs_no_more_than_stated(
    row: str, rates: tuple[float, ...], log_bytes: float
) -> None:
    percent, megabytes = stated(row)
    computed = percent_of_a_core(*rates)
    assert computed <= percent <= computed * 1.5
    assert log_bytes / 1000 <= megabytes <= log_bytes / 1000 * 1.5


def test_the_log_of_a_leased_message_is_that_of_the_decision() -> None:
    decision = (DOCS / "decisions" / "0051-leases-stay-on-the-ring.md").read_text(encoding="utf-8")
    assert "| **on the ring** | 641 B |" in decision


def test_idle_queues_cost_no_more_than_stated() -> None:
    percent, _ = stated("1,000 idle queues with two consumers each")
    measured = RESULTS["scenarios"]["many_queues"]["raw"]["core_percent"]
    assert measured <= percent <= measured * 1.5


def test_a_backlog_takes_the_space_that_is_stated(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('orders', payload => 'text')")
    connection.execute(
        "select mbus.postn_orders(array_fill(repeat('x', 500), array[1000]))"
        f" from generate_series(1, {MESSAGES // 1000})"
    )
    row = connection.execute(
        "select sum(pg_total_relation_size(oid)) from pg_class"
        " where relnamespace = 'mbus'::regnamespace and relkind = 'r' and relname like 'qt$%'"
    ).fetchone()
    assert row is not None
    per_million = float(row[0]) / MESSAGES * 1_000_000 / 1e9
    found = re.search(r"1 million messages of 500 bytes takes ([\d.]+) GB", PAGE)
    assert found is not None
    assert per_million <= float(found[1]) <= per_million * 1.2, per_million


# What a row of the table "Measured" is about, and where its figures are measured.
MEASURED: dict[str, tuple[str, str | tuple[str, ...]]] = {
    "a Python worker with an empty handler": ("worker", "AsyncWorker, empty"),
    "the same by lease": ("worker", "the same, leases"),
    "take 100 messages per commit": ("take", ("take 100", "the same")),
    "post one per commit": ("post_single", "post 1 per"),
    "write-ahead log per message": ("wal", "WAL per message, whole life, by 50"),
    "p99 latency at 5,000/s": ("snapshot", "snapshot held, 5,000"),
    "Celery tasks": ("celery", "Celery tasks"),
    "pick-up of a Celery task": ("celery", "the same, pick-up"),
}
NUMBER = re.compile(r"(\d[\d.,]*)(k?)(?:/s| (B|ms|s|of)\b)?")


def numbers(text: str) -> list[float]:
    """Return the figures of a text, times in milliseconds."""
    text = re.sub(r"\([^)]*\)|after (one|two) minutes?|in 60 s", "", text)
    factors = {"k": 1000, "s": 1000}
    return [
        float(number.rstrip(".,").replace(",", "")) * factors.get(thousand or unit, 1)
        for number, thousand, unit in NUMBER.findall(text)
    ]


def measured_rows() -> list[tuple[str, str]]:
    """Return what a row is about, and its figures."""
    table = PAGE.partition("## Measured\n")[2].partition("\nOther figures")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+ \| [^|]+) \|$", table, re.M)
    return [(what, figures) for what, figures in rows if what != "what"]


def test_each_row_of_measured_figures_names_its_benchmark() -> None:
    found = [[row for row in MEASURED if what.startswith(row)] for what, _ in measured_rows()]
    assert found == [[row] for row in MEASURED]


@pytest.mark.parametrize(("what", "stated_figures"), measured_rows())
def test_measured_figures_are_those_of_the_benchmarks(what: str, stated_figures: str) -> None:
    [(scenario, prefix)] = [MEASURED[row] for row in MEASURED if what.startswith(row)]
    figures = RESULTS["scenarios"][scenario]["figures"]
    texts = [f"{one['ours']} {one['beside']}" for one in figures if one["what"].startswith(prefix)]
    measured = [number for text in texts for number in numbers(text)]
    for figure_ in numbers(stated_figures):
        # The benchmarks may be repeated without this page, which then has older figures.
        assert any(1 / 1.3 <= figure_ / one <= 1.3 for one in measured if one), (figure_, measured)
