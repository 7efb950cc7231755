"""Reads the SQL of the bus: every function with its comment, its signature, its body.

Which errors a function can raise is found by following the calls in the bodies, so that the
reference cannot forget one. Functions that each queue has of its own come from templates; their
placeholders read `<q>` (queue), `<c>` (consumer) and `T` (the queue's payload type).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SQL = Path(__file__).parents[2] / "src" / "postroad" / "bus" / "sql"

PLACEHOLDERS = {
    "{function}": "batch_<q>_by_<c>",
    "{queue}": "<q>",
    "{consumer}": "<c>",
    "{payload}": "T",
    "{model}": "qt_model",
    "{returns}": "table (columns of qt_model, constants text)",
    "{arguments}": "amt integer",
    "{columns_delivered}": "columns of qt_model, constants text",
    "{columns_leased}": "token bigint, attempt integer, leased_until timestamptz",
    "{lease_model}": "lease_model",
}

_FUNCTION = re.compile(
    # A comment that opens a file may stand a blank line above its first function.
    r"(?P<comment>(?:(?:\A(?:--[^\n]*\n)+\n)|(?:^--[^\n]*\n)*))"
    r"^create or replace function mbus\.(?P<name>[\w<>]+)\s*\((?P<arguments>.*?)\)\s*"
    r"(?:returns\s+(?P<returns>.*?)\s+)?language\s(?P<body>.*?)(?=^--|^create or replace |\Z)",
    re.MULTILINE | re.DOTALL,
)
_CALL = re.compile(r"mbus\.([\w<>]+)\s*\(")
# A queue's own function called by a name made at run time: 'post_' || qname.
_CALL_BY_NAME = re.compile(r"'(_?[a-z]+(?:_from)?)_' \|\| ")
_IS_CALL_BY_NAME = re.compile(r"select (?:\* from )?mbus\.%I\(")
# MB000 never leaves the function that raises it.
_CODE = re.compile(r"errcode = '(MB(?!000)\d{3})'")
# Taking is generated twice from one template: as messages, and as parcels for leases.
_ALIAS = {"_take_<q>_by_<c>": "batch_<q>_by_<c>"}


@dataclass(frozen=True)
class Function:
    """One function of schema mbus, as written."""

    name: str
    arguments: str
    returns: str
    comment: tuple[str, ...]
    body: str
    file: str

    @property
    def is_public(self) -> bool:
        """Whether it is for users; the others begin with an underscore."""
        return not self.name.startswith("_")

    @property
    def is_of_queue(self) -> bool:
        """Whether each queue has one of its own."""
        return "<q>" in self.name

    @property
    def signature(self) -> str:
        """The declaration on as many lines as it has arguments, or on one if it fits."""
        arguments = [re.sub(r"\s+", " ", one).strip() for one in _split(self.arguments)]
        line = f"mbus.{self.name}({', '.join(arguments)}) returns {self.returns}"
        if len(line) <= 88:
            return line
        return f"mbus.{self.name}(\n  " + ",\n  ".join(arguments) + f"\n) returns {self.returns}"


def _split(arguments: str) -> list[str]:
    return [one for one in re.split(r",(?![^(]*\))", arguments) if one.strip()]


def _read(file: Path) -> list[Function]:
    text = file.read_text(encoding="utf-8")
    if file.parent.name == "templates":
        for placeholder, shown in PLACEHOLDERS.items():
            text = text.replace(placeholder, shown)
    found = []
    for match in _FUNCTION.finditer(text):
        comment = tuple(
            line.removeprefix("--").removeprefix(" ") for line in match["comment"].splitlines()
        )
        found.append(
            Function(
                name=match["name"],
                arguments=match["arguments"],
                returns=re.sub(r"\s+", " ", match["returns"] or "record"),
                comment=comment,
                body=match["body"],
                file=f"{file.parent.name}/{file.name}",
            )
        )
    return found


@cache
def functions() -> tuple[Function, ...]:
    """Return every function of the sources, internal ones and those of a queue included."""
    files = [file for folder in ("functions", "internal", "templates")
             for file in sorted((SQL / folder).glob("*.sql"))]  # fmt: skip
    return tuple(function for file in files for function in _read(file))


def public() -> dict[str, list[Function]]:
    """Return the public functions by name, with their overloads."""
    found: dict[str, list[Function]] = {}
    for function in functions():
        if function.is_public:
            found.setdefault(function.name, []).append(function)
    return found


def comment(name: str) -> tuple[str, ...]:
    """Return what is said about a function; a twin for another payload refers to its first."""
    overloads = public()[name]
    if overloads[0].comment:
        return overloads[0].comment
    first = next((one for one in public() if one != name and name.startswith(f"{one}_")), None)
    return (f"The same as mbus.{first}() for another payload.",) if first else ()


def _of_queue(prefix: str) -> list[str]:
    return [
        one.name for one in functions() if one.name in {f"{prefix}_<q>", f"{prefix}_<q>_by_<c>"}
    ]


@cache
def errors(name: str) -> tuple[str, ...]:
    """Return the codes that a function can raise, by itself or through what it calls."""
    seen: set[str] = set()
    codes: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        current = _ALIAS.get(current, current)
        if current in seen:
            continue
        seen.add(current)
        for function in functions():
            if function.name != current:
                continue
            codes.update(_CODE.findall(function.body))
            waiting.extend(_CALL.findall(function.body))
            if _IS_CALL_BY_NAME.search(function.body):
                for prefix in _CALL_BY_NAME.findall(function.body):
                    waiting.extend(_of_queue(prefix))
    return tuple(sorted(codes))
