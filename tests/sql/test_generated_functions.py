"""What the templates become: readable, parseable, and not changed by accident.

To take over an intended change: POSTROAD_REFRESH_SNAPSHOTS=1 python -m pytest tests/sql -k snapshot
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pglast
import pytest
from psycopg import Connection

from tests.sql.calls import post, rows

pytestmark = pytest.mark.both_versions

SNAPSHOTS = Path(__file__).parent / "snapshots"

SHAPES = {
    "direct": "select mbus.create_queue('sample', 2)",
    "fanout": """
        select mbus.create_queue('sample', 2, payload => 'jsonb');
        select mbus.create_consumer('sample', 'done', $$(t.properties->'STATE')='DONE'$$)""",
    "grouped": "select mbus.create_queue('sample', 2)",
    "cursor": """
        select mbus.create_queue('sample', 2);
        select mbus.create_consumer('sample', 'reader', contract => 'cursor')""",
}


STEADY = """
    alter table mbus.queue alter column id restart with 7000;
    alter table mbus.consumer alter column id restart with 8000;
    update mbus.node set name = 'node'"""


def functions(connection: Connection, shape: str) -> dict[str, str]:
    """Make a sample queue and return its functions, the same in every run."""
    connection.execute(STEADY)
    connection.execute(SHAPES[shape].encode())
    if shape == "grouped":
        post(connection, 1, "group=>a", queue="sample")
        post(connection, 1, "priority=>high", queue="sample")
    return {
        name: text.replace(connection.info.dbname, "database")
        for name, text in rows(
            connection,
            "select p.proname::text, pg_get_functiondef(p.oid) from pg_proc p"
            " where p.pronamespace = 'mbus'::regnamespace and p.proname ~ '_sample($|_by_)'"
            ' order by p.proname collate "C"',
        )
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_generated_text_is_valid(connection: Connection, shape: str) -> None:
    texts = functions(connection, shape)
    assert len(texts) > 10
    connection.execute("set local check_function_bodies = on")
    for name, text in texts.items():
        pglast.parse_sql(text)
        # The server's own look at the body, which generation leaves out for speed.
        connection.execute(text.encode())
        assert re.findall(r"\{[a-z_]+\}", re.sub(r"'[^']*'", "", text)) == [], name


@pytest.mark.parametrize("shape", SHAPES)
def test_the_generated_text_equals_its_snapshot(connection: Connection, shape: str) -> None:
    pages = "\n".join(functions(connection, shape).values())
    path = SNAPSHOTS / f"{shape}.sql"
    if os.environ.get("POSTROAD_REFRESH_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(pages, encoding="utf-8")
    assert pages == path.read_text(encoding="utf-8"), "refresh the snapshot if this is intended"
