"""hstore as text, in both directions, and PostgreSQL array literals.

Values are sent as text of unknown type, and the server converts them to the type of the parameter.
So no type has to be looked up or registered: hstore may be in any schema, and
the adapters of a caller's connection are not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Hstore: TypeAlias = Mapping[str, str | None]

_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(NULL|"(?:[^"\\]|\\.)*")', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def dump(value: Hstore) -> str:
    """Write a mapping as hstore text; raise TypeError or ValueError if that is impossible."""
    pairs = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"an hstore key must be a string, not {type(key).__name__}")
        if item is None:
            pairs.append(_quote(key) + "=>NULL")
        elif isinstance(item, str):
            pairs.append(_quote(key) + "=>" + _quote(item))
        else:
            raise TypeError(
                f"the hstore value of {key!r} must be a string or None, not {type(item).__name__}"
            )
    return storable(",".join(pairs))


def storable(text: str) -> str:
    """Return text that the server can store; raise ValueError for NUL and lone surrogates."""
    if "\0" in text:
        raise ValueError("PostgreSQL cannot store the character NUL in text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"lone surrogate at {error.start}: {error.reason}") from error
    return text


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def parse(text: str) -> dict[str, str | None]:
    """Parse the text that the server writes for an hstore."""
    pairs = _PAIR.findall(text)
    if "\\" in text:
        return {
            _unescape(key): None if item == "NULL" else _unescape(item[1:-1]) for key, item in pairs
        }
    return {key: None if item == "NULL" else item[1:-1] for key, item in pairs}


class Untyped(str):
    """Text whose type a driver must not check, because the server converts it."""

    __slots__ = ()


def array_literal(items: Iterable[str | None]) -> Untyped:
    """Write a one-dimensional array literal; the server decides what the elements are."""
    written = ",".join("NULL" if item is None else _quote(item) for item in items)
    return Untyped(f"{{{written}}}")
