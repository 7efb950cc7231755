"""`postroad bus dead`: groups, bulk actions by filter, one message with other data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from postroad.bus import Bus
from postroad.testing import wait_until
from tests.integration.bus.test_command_line import Said, run

__all__ = ["run"]

MESSAGES = 200_000 if os.environ.get("POSTROAD_STRESS") else 2_500


@pytest.fixture
def bus(database: str) -> Bus:
    bus = Bus(database)
    bus.create_queue("orders", payload="jsonb")
    return bus


def die(bus: Bus, errors: list[str], consumer: str = "default") -> None:
    """Let a message die of each error; every second one has the property CITY."""
    properties = [{"CITY": "Tver"} if n % 2 else {} for n in range(len(errors))]
    bus.post_many("orders", [{"n": n} for n in range(len(errors))], properties=properties)
    held = bus.lease("orders", consumer, amount=len(errors))
    for message, error in zip(held, errors, strict=True):
        bus.nack(message, error=error, dead_letter=True)


def numbers(bus: Bus, queue: str = "orders") -> list[int]:
    found: list[int] = []
    while batch := bus.consume(queue, amount=10_000):
        found += [message.data["n"] for message in batch]
    return found


def test_dead_messages_are_listed_in_groups(run: Callable[..., Said], bus: Bus) -> None:
    die(bus, ["no customer 17", "no customer 18", "out of paper"])
    groups = run("dead-groups", "orders", "--sort", "messages", "--descending", "--json").json
    assert [(one["error"], one["messages"]) for one in groups] == [
        ("no customer ?", 2),
        ("out of paper", 1),
    ]
    assert sum(groups[0]["trend"]) == 2
    assert "no customer ?" in run("dead-groups").out
    [shown] = run("dead", "list", "--group", groups[1]["fingerprint"], "--json").json
    assert shown["error"] == "out of paper"
    assert run("dead", "show", str(shown["id"]), "--json").json["iid"] == shown["iid"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (("--error-class", "KeyError"), [0, 1]),
        (("--property", "CITY=Tver"), [1, 3]),
        (("--search", "paper"), [2]),
        (("--newer-than", "1 hour", "--error-class", "Value"), [3]),
        (("--older-than", "1 hour"), []),
        (("--died-before", "2020-01-01"), []),
        (("--queue", "orders", "--consumer", "default"), [0, 1, 2, 3]),
    ],
)
def test_dead_messages_that_match_a_filter_are_redriven(
    run: Callable[..., Said], bus: Bus, filters: tuple[str, ...], expected: list[int]
) -> None:
    die(bus, ["KeyError: 1", "KeyError: 2", "out of paper", "ValueError: 3"])
    redrive = ("dead", "redrive", "--all", *filters)
    would = f"{len(expected)} dead messages would be changed\n"
    assert run(*redrive, "--dry-run").out == would
    assert numbers(bus) == []
    assert run(*redrive).out == f"{len(expected)} dead messages are changed\n"
    assert numbers(bus) == expected
    assert run(*redrive, "--json").json["count"] == 0


def test_dead_messages_are_delayed_moved_and_deleted(run: Callable[..., Said], bus: Bus) -> None:
    bus.create_queue("archive", payload="jsonb")
    die(bus, ["a", "b", "c"])
    ids = {one["error"]: str(one["id"]) for one in run("dead", "--json").json}
    assert run("dead", "redrive", ids["a"], "--delay", "1h").out == "1 are redriven\n"
    assert bus.status("orders")[0].delayed == 1
    missing = run("dead", "move", ids["b"], "--destination", "nowhere")
    assert missing.code != 0
    assert "nowhere" in missing.error
    assert run("dead", "move", "--all", "--destination", "nowhere").code != 0
    moved = run("dead", "move", "--all", "--error-class", "b", "--destination", "archive")
    assert moved.out == "1 dead messages are changed\n"
    assert numbers(bus, "archive") == [1]
    assert run("dead", "purge", "--all", "--yes").out == "1 dead messages are changed\n"
    assert run("dead", "--json").json == []
    assert run("dead", "list", "--older-than", "soon").code != 0


def test_a_dead_message_is_edited_and_its_original_is_listed(
    run: Callable[..., Said], bus: Bus
) -> None:
    die(bus, ["no customer", "no city"])
    first, second = sorted(one["iid"] for one in run("dead", "--json").json)
    for text, found in ((first, [first]), (first.partition("@")[0] + "@other", []), ("4711", [])):
        listed = run("dead", "list", "--iid", text, "--json").json
        assert [one["iid"] for one in listed] == found
    edit = ("dead", "edit", first, "--data", '{"n": 7}', "--properties", '{"CITY": "Omsk"}')
    assert run(*edit, "--dry-run").out == "1 would be redriven\n"
    assert run(*edit).out == "1 is redriven\n"
    assert run(*edit).out == f"message {first} is not dead\n"
    assert run("dead", "edit", second, "--data", "{").code != 0
    assert run("dead", "edit", second, "--properties", "{").code != 0
    (message,) = bus.consume("orders")
    assert (message.iid, message.data, message.properties) == (first, {"n": 7}, {"CITY": "Omsk"})
    [original] = run("dead-originals", "orders", "--iid", first, "--json").json
    assert (original["data"], original["properties"]) == ('{"n": 0}', {})
    assert original["edited_by"].endswith("(command line)")
    assert bus.redrive_edited(second, {"n": 8}) == 1
    assert numbers(bus) == [8]


@pytest.mark.timeout(1800)
def test_a_redrive_that_was_killed_is_continued_and_delivers_each_message_once(
    run: Callable[..., Said], bus: Bus, database: str
) -> None:
    """Five errors, of which the first one is that of most messages."""
    errors = ["no customer %s", "out of paper", "no city", "no road", "no order"]
    wanted = MESSAGES * 88 // 100
    for start in range(0, MESSAGES, 2_500):
        bus.post_many("orders", [{"n": n} for n in range(start, start + 2_500)])
    with psycopg.connect(database) as connection:
        while held := bus.lease("orders", amount=2_500, ttl=timedelta(hours=1)):
            connection.cursor().executemany(
                "select mbus.nack(%s, %s, error => %s, park => true)",
                [
                    (one.iid, one.token, errors[0] % n if n < wanted else errors[1 + n % 4])
                    for one in held
                    for n in [one.data["n"]]
                ],
            )
            connection.commit()
    groups = run("dead-groups", "--sort", "messages", "--descending", "--json").json
    assert [one["messages"] for one in groups] == [wanted] + [(MESSAGES - wanted) // 4] * 4
    began = datetime.now(UTC).isoformat()
    redrive = ["dead", "redrive", "--all", "--queue", "orders"]
    redrive += ["--group", groups[0]["fingerprint"], "--died-before", began]
    with psycopg.connect(database, autocommit=True) as connection:
        # Not the first batch stops before its last message.
        connection.execute("select pg_advisory_lock(4711)")
        connection.execute(
            "create function wait_here() returns trigger language plpgsql as"
            " 'begin perform pg_advisory_xact_lock_shared(4711); return old; end'"
        )
        connection.execute(
            "create trigger wait_here before delete on mbus.dmq for each row"
            f" when (old.number = {wanted // 4}) execute function wait_here()".encode()
        )
        command = [sys.executable, "-c", "from postroad.cli import run; run()"]
        killed = subprocess.Popen([*command, "--database-url", database, "bus", *redrive])
        waiting = (
            "select pid from pg_stat_activity where datname = current_database()"
            " and wait_event = 'advisory'"
        )
        found = wait_until(
            lambda: connection.execute(waiting).fetchone(), what="it waits", timeout_seconds=300
        )
        killed.kill()
        killed.wait()
        connection.execute("select pg_advisory_unlock(4711)")
        alive = "select from pg_stat_activity where pid = %s"
        wait_until(
            lambda: connection.execute(alive, found).fetchone() is None, what="its session ended"
        )
    (again,) = bus.lease("orders")
    # Messages that fail again are not redriven again.
    bus.nack(again, error="no customer 0", dead_letter=True)
    delivered = [again.data["n"], *numbers(bus)]
    assert 1 < len(delivered) < wanted
    assert run(*redrive).out == f"{wanted - len(delivered)} dead messages are changed\n"
    assert sorted(delivered + numbers(bus)) == list(range(wanted))
    with psycopg.connect(database) as connection:
        left = connection.execute("select count(*) from mbus.dmq").fetchone()
    assert left == (MESSAGES - wanted + 1,)
