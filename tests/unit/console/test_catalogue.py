"""Both languages say the same things."""

from __future__ import annotations

import importlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

import postroad.console
from postroad.console.catalogue import LANGUAGES, choose_language, texts
from postroad.console.view import View
from postroad.errors import PostroadError
from postroad.intake.errors import ServerExists
from postroad.operate import Action

FIELD = re.compile(r"\{(\w+)\}")
SOURCES = sorted(Path(postroad.console.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_has_the_same_keys(language: str) -> None:
    assert texts(language).entries.keys() == texts("en").entries.keys()


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_text_says_something_with_the_same_values(language: str) -> None:
    for key, text in texts(language).entries.items():
        assert text.strip(), key
        assert set(FIELD.findall(text)) == set(FIELD.findall(texts("en").entries[key])), key


def test_every_key_that_pages_ask_for_is_there() -> None:
    asked = {
        key
        for source in SOURCES
        for key in re.findall(r'\bt\("([a-z_]+\.[a-z_.]+)"', source.read_text(encoding="utf-8"))
    }
    assert len(asked) > 100
    assert asked - texts("en").entries.keys() == set()


def test_no_text_is_left_over() -> None:
    everything = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES)
    # Keys that are put together from a part and a name: whole sections, or as an f-string says.
    made = ("state.", "role.", "nav.", "unit.", "problem.", "word.", "empty.", "gone.")
    patterns = [
        re.compile(re.sub(r"\{[^}]*\}", r"\\w+", found.replace(".", r"\.")))
        for found in re.findall(r"""f["']([a-z]+\.[a-z_]*\{\w+\}\w*)["']""", everything)
    ]
    # Dialogs of actions look for a note and for titles of parameters.
    actions = [
        (component, one)
        for component in ("alerts", "bus", "exchange", "intake")
        for one in vars(importlib.import_module(f"postroad.{component}.resources")).values()
        if isinstance(one, Action)
    ]
    shown = {f"{component}.{one.verb}_note" for component, one in actions}
    shown |= {f"{component}.{each.name}" for component, one in actions for each in one.parameters}
    unused = [
        key
        for key in texts("en").entries
        if not key.startswith(made)
        and key not in shown
        and f'"{key}"' not in everything
        and f"'{key}'" not in everything
        and not any(pattern.fullmatch(key) for pattern in patterns)
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        (None, "ru-RU,ru;q=0.9,en;q=0.8", "ru"),
        (None, "fr,de", "en"),
        ("en", "ru", "en"),
        ("xx", "ru", "ru"),
        (None, "", "en"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_browsers(
    chosen: str | None, accepted: str, language: str
) -> None:
    assert choose_language(chosen, accepted) == language


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_state_that_a_table_allows_has_a_word(language: str) -> None:
    allowed = set()
    for component in ("exchange", "intake", "coordination", "console", "bridge"):
        for file in files(f"postroad.{component}").joinpath("sql", "tables").iterdir():
            text = file.read_text(encoding="utf-8")
            for listed in re.findall(r"\b(?:state|status|mode) in\s*\(([^)]*)\)", text):
                allowed |= set(re.findall(r"'([\w-]+)'", listed))
    assert len(allowed) > 20
    named = texts(language).entries
    assert [state for state in sorted(allowed) if f"state.{state.lower()}" not in named] == []


def test_every_translated_problem_is_an_error_that_there_is() -> None:
    for component in ("alerts", "bus", "console", "coordination", "exchange", "intake"):
        importlib.import_module(f"postroad.{component}.resources")
    leaves, codes = [PostroadError], set[str]()
    while leaves:
        leaf = leaves.pop()
        codes.add(leaf.code)
        leaves += leaf.__subclasses__()
    named = {
        key.removeprefix("problem.")
        for key in texts("ru").entries
        if key.startswith("problem.") and not key.startswith("problem.kind_")
    }
    assert len(named) > 20
    assert named - codes == set()


def test_a_problem_is_described_in_russian_with_its_details() -> None:
    view = View.__new__(View)
    view.t = texts("ru")
    described = view.explain(ServerExists('the name "acme" is taken', hint="choose another"))
    assert described.startswith("Имя занято")
    assert "acme" in described
