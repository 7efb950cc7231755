"""The check for words that the style guide replaces."""

from __future__ import annotations

import pytest

from tools.check_words import found_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The room is told.", ["room", "tell"]),
        ("class HouseSettings:", ["house"]),
        ("self._desk.marks_of(whoever)", ["desk", "marks", "whoever"]),
        ("BODY_BYTES_MOST = 10", ["_MOST"]),
        ("src/postroad/intake/gathering.py", ["module"]),
        ("it restarts at once, by itself", ["at once", "by itself"]),
    ],
)
def test_a_replaced_word_is_found_in_prose_and_in_names(text: str, words: list[str]) -> None:
    assert found_in(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "a warehouse with a standby, looked up in turn",
        "the client hands over the file and marks it as read",
        "turn the option off; return what is most recent",
        "Authorization: Bearer; an unknown doorbell",
        "the audit trail",
    ],
)
def test_a_term_of_the_field_is_not_a_replaced_word(text: str) -> None:
    assert found_in(text) == []
