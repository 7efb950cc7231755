"""Every snippet of the pages that teach runs, and shows what the page says it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from postroad.bus import AsyncWorker, Worker
from postroad.cli.rooms import SCHEMAS
from postroad.postgres import install
from postroad.testing import TestServer
from tests.docs.runner import PageRunner, serve_until_worked_off, serve_until_worked_off_async
from tests.docs.snippets import DOCS, pages_run, snippets

PAGES = [page for page in pages_run() if snippets(page)]


@pytest.fixture
def fresh_database(_servers: Callable[[Path | None], TestServer]) -> Iterator[str]:
    """The embedded version only: whether SQL runs on both is asked in tests/sql."""
    with _servers(None).clone() as dsn:
        yield dsn


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_snippets_of_a_page_run_in_order(
    page: Path, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Installed and not cloned: the roles of the bus are named after the database of the install.
    with psycopg.connect(fresh_database) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
    monkeypatch.setattr(Worker, "serve", serve_until_worked_off)
    monkeypatch.setattr(AsyncWorker, "serve", serve_until_worked_off_async)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", fresh_database)
    runner = PageRunner(fresh_database, tmp_path)
    for snippet in snippets(page):
        try:
            runner.run(snippet)
        except Exception as failure:
            failure.add_note(f"snippet at {page.relative_to(DOCS)}:{snippet.line}")
            raise


def test_the_quickstart_shows_all_three_ways() -> None:
    languages = {snippet.language for snippet in snippets(DOCS / "quickstart.md")}
    assert languages == {"sql", "python", "console"}
