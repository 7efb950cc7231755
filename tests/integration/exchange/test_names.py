"""File names: readable, and never those of two messages."""

from __future__ import annotations

from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.exchange import LocalExchange

FILE_NAME = "select exchange._file_name(%s, %s, %s, %s, null)"

PIECES = st.sampled_from(["a", "1", "x", "_", "from", "to", "_from_", "_to_", "any", ".", "-"])
IDS = st.lists(PIECES, min_size=1, max_size=5).map("".join).filter(lambda id_: id_[0].isalnum())
MESSAGES = st.tuples(st.integers(1, 12), IDS, IDS, IDS)


def test_no_two_messages_share_a_name(database: str) -> None:
    with psycopg.connect(database) as connection:

        def name(message: tuple[Any, ...]) -> str:
            row = connection.execute(FILE_NAME, message).fetchone()
            assert row is not None
            return str(row[0])

        seen: dict[str, tuple[Any, ...]] = {}

        @settings(
            max_examples=300,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(MESSAGES)
        def check(message: tuple[Any, ...]) -> None:
            sequence, id_, sender, recipient = message
            plain = f"{sequence}_{id_}_from_{sender}_to_{recipient}"
            assert name(message).startswith(plain)
            for other in _readings(plain):
                assert seen.setdefault(name(other), other) == other

        check()


def _readings(plain: str) -> list[tuple[Any, ...]]:
    """Every message that would have this name if it were only put together."""
    sequence, _, rest = plain.partition("_")
    found = []
    for first in range(len(rest)):
        if rest.startswith("_from_", first):
            who = rest[first + len("_from_") :]
            found += [
                (int(sequence), rest[:first], who[:second], who[second + len("_to_") :])
                for second in range(len(who))
                if who.startswith("_to_", second)
            ]
    return found


async def test_names_that_could_be_read_in_two_ways_differ(exchange: LocalExchange) -> None:
    victim, mallory, erp = (exchange.caller(name) for name in ("victim", "mallory", "erp"))
    first = await victim.send("5_from_mallory_to_x", body={"who": "victim"})
    second = await mallory.send("5", recipient="x_from_victim_to_any", body={"who": "mallory"})
    assert first["name"] != second["name"]
    process = await erp.begin()
    assert [file["body"] for file in process["files"]] == [{"who": "victim"}]
    assert len(exchange.files()["Messages"]) == 2
