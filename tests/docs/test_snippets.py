"""Every snippet of the pages that teach runs, and shows what the page says it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postroad.bus import AsyncWorker, Worker
from postroad.cli.components import SCHEMAS
from postroad.postgres import install
from postroad.testing import TestServer
from tests.docs.other_systems import prepare
from tests.docs.runner import PageRunner, serve_until_worked_off, serve_until_worked_off_async
from tests.docs.snippets import DOCS, pages_run, snippets

PAGES = [page for page in pages_run() if snippets(page)]


@pytest.fixture
def database_of_page(page: Path, server: TestServer) -> Iterator[str]:
    # The roles of the bus are named after the database of the install, so a clone has none.
    if "current_database() || '_" not in page.read_text(encoding="utf-8"):
        with server.clone(*SCHEMAS) as dsn:
            yield dsn
        return
    with server.clone() as dsn:
        with psycopg.connect(dsn) as connection:
            for schema in SCHEMAS:
                install(connection, schema)
        yield dsn


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_snippets_of_a_page_run_in_order(
    page: Path, database_of_page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "serve", serve_until_worked_off)
    monkeypatch.setattr(AsyncWorker, "serve", serve_until_worked_off_async)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database_of_page)
    more = prepare(str(page.relative_to(DOCS)), database_of_page, tmp_path)
    with PageRunner(database_of_page, tmp_path, more) as runner:
        for snippet in snippets(page):
            try:
                runner.run(snippet)
            except Exception as failure:
                failure.add_note(f"snippet at {page.relative_to(DOCS)}:{snippet.line}")
                raise


def test_the_quickstart_shows_all_three_ways() -> None:
    languages = {snippet.language for snippet in snippets(DOCS / "quickstart.md")}
    assert languages == {"sql", "python", "console"}


def test_a_folder_without_pages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.snippets.FOLDERS_RUN", ("howto", "rooms"))
    with pytest.raises(FileNotFoundError, match="docs/rooms"):
        pages_run()
