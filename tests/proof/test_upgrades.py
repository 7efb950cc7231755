"""The rehearsal of upgrades: the last former version passes, and planted damage is found."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from postroad.testing import TestServer
from proof.upgrades import check_data, check_load, differences, misplaced
from proof.upgrades.versions import current, former, run_program

pytestmark = pytest.mark.slow


def test_the_last_former_version_is_upgraded(server: TestServer, tmp_path: Path) -> None:
    version = former(tmp_path)[-1]
    assert check_data(server, version) == []
    load = check_load(server, version, 10)
    assert load.violations == ()
    assert load.messages > 0


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("alter table mbus.queue add column extra text", "column queue.extra is left"),
        ("alter table mbus.saga alter column name drop not null", "column saga.name differs"),
        ("drop function mbus.ack(text, bigint)", "function mbus.ack(text,bigint) lacks"),
    ],
)
def test_a_catalogue_that_differs_is_found(server: TestServer, damage: str, found: str) -> None:
    names = [server.create("template0") for _ in range(2)]
    one, other = (server.dsn(name) for name in names)
    for dsn in (one, other):
        current().install(dsn)
    assert differences(one, other) == []
    with psycopg.connect(one, autocommit=True) as connection:
        connection.execute(damage.encode())
    assert any(found in text for text in differences(one, other))


def test_a_message_that_is_missing_or_repeated_is_found(empty_database: str) -> None:
    current().install(empty_database)
    held = json.loads(run_program(current(), "fill", empty_database))
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("select mbus.consume_grouped_by_default()")
        connection.execute("select mbus.post_fan('6')")
    found = misplaced(empty_database, held)
    assert len(found) == 2
    assert found[0].startswith("fan-out: ['0', '1'")
    assert found[1].startswith("group: [2, 4] instead of [0, 2, 4]")
