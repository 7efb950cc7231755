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
from tests.docs.openings import opened
from tests.docs.other_systems import Place, prepare
from tests.docs.runner import PageRunner, serve_until_worked_off, serve_until_worked_off_async
from tests.docs.snippets import DOCS, pages_run, snippets

PAGES = [page for page in pages_run() if snippets(page)]
TUTORIALS = [page for page in PAGES if page.parent.name == "tutorials"]


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS))


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
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in TUTORIALS], ids=lambda page: _name(page)
)
def test_the_snippets_of_a_page_run_in_order(
    page: Path,
    database_of_page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(Worker, "serve", serve_until_worked_off)
    monkeypatch.setattr(AsyncWorker, "serve", serve_until_worked_off_async)
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database_of_page)
    run(page, Place(database_of_page, tmp_path, request.getfixturevalue), {})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: _name(page))
def test_a_tutorial_works_from_its_first_block_on(
    page: Path, server: TestServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with opened(page, server, tmp_path) as opening:
        place = Place(opening.dsn, opening.folder, request.getfixturevalue)
        run(page, place, opening.variables)


def run(page: Path, place: Place, variables: dict[str, str]) -> None:
    prepared = prepare(_name(page), place)
    more = {**variables, **prepared.variables}
    with PageRunner(place.dsn, place.folder, more, prepared.replaced) as runner:
        for snippet in snippets(page):
            try:
                runner.run(snippet)
            except Exception as failure:
                failure.add_note(f"snippet at {_name(page)}:{snippet.line}")
                raise


def test_the_quickstart_shows_all_three_ways() -> None:
    languages = {snippet.language for snippet in snippets(DOCS / "quickstart.md")}
    assert languages == {"sql", "python", "console"}


def test_a_folder_without_pages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.snippets.FOLDERS_RUN", ("howto", "rooms"))
    with pytest.raises(FileNotFoundError, match="docs/rooms"):
        pages_run()
