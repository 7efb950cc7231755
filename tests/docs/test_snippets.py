"""Every snippet of the pages that teach runs, and shows what the page says it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postroad.bus import AsyncWorker, Worker
from postroad.cli.rooms import SCHEMAS
from postroad.testing import TestServer
from tests.docs.runner import PageRunner, serve_until_worked_off, serve_until_worked_off_async
from tests.docs.snippets import DOCS, pages_run, snippets
from tests.fixtures.owned import Original

PAGES = [page for page in pages_run() if snippets(page)]


@pytest.fixture
def database_of_page(
    page: Path, server: TestServer, _originals: Callable[[TestServer], Original]
) -> Iterator[str]:
    has_roles = "current_database() || '_" in page.read_text(encoding="utf-8")
    with _originals(server).copy() if has_roles else server.clone(*SCHEMAS) as dsn:
        yield dsn


@pytest.mark.timeout(180)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_snippets_of_a_page_run_in_order(
    page: Path, database_of_page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "serve", serve_until_worked_off)
    monkeypatch.setattr(AsyncWorker, "serve", serve_until_worked_off_async)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database_of_page)
    runner = PageRunner(database_of_page, tmp_path)
    for snippet in snippets(page):
        try:
            runner.run(snippet)
        except Exception as failure:
            failure.add_note(f"snippet at {page.relative_to(DOCS)}:{snippet.line}")
            raise


def test_the_quickstart_shows_all_three_ways() -> None:
    languages = {snippet.language for snippet in snippets(DOCS / "quickstart.md")}
    assert languages == {"sql", "python", "console"}
