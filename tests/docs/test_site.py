"""The pages hang together: links and the table of contents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.docs.snippets import DOCS, ROOT
from tools.docs.markdown import anchor

PAGES = sorted(DOCS.rglob("*.md"))
_FENCES = re.compile(r"^ *```.*?^ *```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
# Written in pieces, so that this file does not contain what it looks for.
_REGISTRIES = re.compile(
    "|".join(("py" + "pi", "python" + "hosted", "npm" + "js", "yarn" + "pkg", "docker" + r"\.io"))
)


def _anchors(page: Path) -> set[str]:
    text = _FENCES.sub("", page.read_text(encoding="utf-8"))
    return {anchor(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_internal_links_of_a_page_resolve(page: Path) -> None:
    text = _FENCES.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_there = target.is_file() and (
            not place or target.suffix != ".md" or place in _anchors(target)
        )
        if not is_there:
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_names_no_registry_and_no_folder_of_one_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert _REGISTRIES.search(text) is None
    assert re.search(r"/(?:home|Users)/\w", text) is None


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_begins_with_one_title(page: Path) -> None:
    text = _FENCES.sub("", page.read_text(encoding="utf-8"))
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def _entries(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    assert hasattr(items, "__iter__")
    return [entry for item in items for entry in _entries(item)]


def test_the_table_of_contents_has_every_page_once() -> None:
    # Tags such as !!python/name are of the site's builder; here they are only text.
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)
    entries = _entries(settings["nav"])
    assert len(entries) == len(set(entries))
    assert [entry for entry in entries if not (DOCS / entry).is_file()] == []
    # Decisions are listed by their own index, results of benchmarks by their own page.
    expected = {
        _name(page) for page in PAGES if page.parent.name not in {"decisions", "benchmarks"}
    }
    assert expected <= set(entries)
