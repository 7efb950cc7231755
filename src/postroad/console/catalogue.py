"""The console's texts, as data: `messages/<language>.toml`, the same keys in each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from starlette.requests import HTTPConnection

from postroad.console.markup import NOTHING

LANGUAGES: Mapping[str, str] = {"en": "English", "ru": "Русский"}
LANGUAGE_DEFAULT = "en"


class Texts:
    """The texts of one language: `t("bus.title")`, `t("saga.one_title", saga_id=5)`."""

    def __init__(self, language: str, entries: Mapping[str, str]) -> None:
        self.language = language
        self.entries = entries

    def __call__(self, key: str, **values: object) -> str:
        """Return a text with its values filled in; raise KeyError for an unknown key."""
        text = self.entries[key]
        return text.format(**values) if values else text

    def plural(self, key: str, count: int) -> str:
        """Return the plural form of a text for a number; forms are separated by `|`."""
        forms = self.entries[key].split("|")
        if self.language == "ru":
            last, teens = count % 10, 10 < count % 100 < 20
            form = 0 if last == 1 and not teens else 1 if last in (2, 3, 4) and not teens else 2
        else:
            form = 0 if count == 1 else 1
        return forms[form].format(count=count)

    def state(self, name: str, of: str = "") -> str:
        """Return the word for a state, in the column `of`; an unknown one is shown by its name."""
        general = self.entries.get(f"state.{name}", name.replace("_", " "))
        return self.entries.get(f"word.{of}.{name}", general)

    def age(self, value: timedelta | None) -> str:
        """Write a duration with its largest unit."""
        if value is None:
            return NOTHING
        seconds = value.total_seconds()
        if seconds < 1:
            return f"{seconds * 1000:.0f} {self('unit.ms')}"
        for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
            if seconds >= 2 * size:
                return f"{seconds / size:.0f} {self.entries[f'unit.{unit}']}"
        return f"{seconds:.0f} {self('unit.s')}"

    def size(self, length: int | None) -> str:
        """Write a number of bytes with its largest unit."""
        if length is None:
            return NOTHING
        amount = float(length)
        for unit in ("byte", "kilobyte", "megabyte"):
            if amount < 1000:
                shown = f"{amount:.0f}" if unit == "byte" else f"{amount:.1f}"
                return f"{shown} {self.entries[f'unit.{unit}']}"
            amount /= 1000
        return f"{amount:.1f} {self('unit.gigabyte')}"


@cache
def texts(language: str) -> Texts:
    """Read a language's file."""
    file = files("postroad.console").joinpath("messages", f"{language}.toml")
    entries = dict(_flat(tomllib.loads(file.read_text(encoding="utf-8"))))
    return Texts(language, entries)


def choose_language(chosen: str | None, accepted: str) -> str:
    """Return the chosen language, or the first of the browser's languages that is supported."""
    if chosen in LANGUAGES:
        return str(chosen)
    for part in accepted.split(","):
        language = part.split(";")[0].strip().lower()[:2]
        if language in LANGUAGES:
            return language
    return LANGUAGE_DEFAULT


def texts_of(request: HTTPConnection) -> Texts:
    """Return the texts in the caller's language, signed in or not."""
    chosen = request.cookies.get("postroad_language")
    return texts(choose_language(chosen, request.headers.get("accept-language", "")))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)
