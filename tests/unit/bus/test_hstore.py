from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.bus import hstore

TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)))
MAPPINGS = st.dictionaries(TEXT, TEXT | st.none())


@given(MAPPINGS)
def test_what_is_written_is_read_again(value: dict[str, str | None]) -> None:
    assert hstore.parse(hstore.dump(value)) == value


def test_the_servers_own_writing_is_read() -> None:
    text = r'"a"=>"1", "b"=>NULL, "c"=>"NULL", "d\"e"=>"\\", "f"=>"x=>y, \"z\""'
    assert hstore.parse(text) == {
        "a": "1",
        "b": None,
        "c": "NULL",
        'd"e': "\\",
        "f": 'x=>y, "z"',
    }
    assert hstore.parse("") == {}


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(TypeError, match="key must be a string"):
        hstore.dump({1: "a"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="value of 'a'"):
        hstore.dump({"a": 1})  # type: ignore[dict-item]


def test_array_literals_quote_their_elements() -> None:
    assert hstore.array_literal(['a"b', "c\\d", None, ""]) == r'{"a\"b","c\\d",NULL,""}'
    assert hstore.array_literal([]) == "{}"
