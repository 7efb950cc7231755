"""The SQL of the README runs as it stands; its Python is run from the wheel."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.docs.runner import PageRunner
from tests.docs.snippets import ROOT, snippets


def test_the_sql_of_the_readme_runs(database: str, tmp_path: Path) -> None:
    examples = [one for one in snippets(ROOT / "README.md") if one.language == "sql"]
    assert len(examples) == 1
    with PageRunner(database, tmp_path) as runner:
        runner.run(examples[0])
    with psycopg.connect(database) as connection:
        depths = "select consumer, depth from mbus.status order by 1"
        # The consumer `large` has consumed its copy, `default` still has its own.
        assert connection.execute(depths).fetchall() == [("default", 1), ("large", 0)]
