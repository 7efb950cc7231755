"""How commands show results: a table for people, JSON for machines.

`--json` prints one JSON document, or one object per line for commands that stream (`tail`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from postroad.errors import Kind
from postroad.settings import values

Command = Callable[..., Any]

# The exit code of each kind of error, and its meaning.
EXIT_CODES: dict[Kind, tuple[int, str]] = {
    "error": (1, "the command failed"),
    "usage": (2, "wrong option, argument or setting"),
    "not_found": (3, "no such queue, consumer, message or schema"),
    "refused": (4, "refused, nothing was changed"),
    "unavailable": (5, "a required server or program is not available"),
}
INTERRUPTED = 130


def parse_duration(value: str) -> timedelta:
    """Parse a number with its unit: `500ms`, `30s`, `5m`, `2h`, `1d`."""
    try:
        return values.parse_duration(value)
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None


# Shared by all commands; passed as `as_json` and `is_dry_run`.
JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for machines.")
DRY_RUN = click.Option(
    ["--dry-run", "is_dry_run"], is_flag=True, help="Report what would be done; change nothing."
)


def duration_option(*names: str, help: str) -> Callable[[Command], Command]:
    """Add an option that is a number with its unit."""
    return click.option(*names, type=parse_duration, metavar="DURATION", help=help)


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Print a value as JSON; on one line if a stream of objects is printed."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=None if is_line else 2))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None
) -> None:
    """Print rows under the names of their columns; numbers are right-aligned."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(
            isinstance(row[index], int | float) and not isinstance(row[index], bool)
            for row in rows
            if row[index] is not None
        )
        table.add_column(
            column.replace("_", " "), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        # Text and not markup: a queue's data may contain square brackets.
        table.add_row(*(Text(_shown(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        # In a pipe, lines are not wrapped to the width of a terminal.
        console = Console(width=10_000, soft_wrap=True)
    console.print(table)


def print_records(
    records: Sequence[Any], *, as_json: bool, columns: Sequence[str] = (), empty: str = ""
) -> None:
    """Print dictionaries or dataclasses: all their fields as JSON, or some of them as a table."""
    rows = [one if isinstance(one, dict) else dataclasses.asdict(one) for one in records]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(empty, err=True)
    else:
        names = columns or list(rows[0])
        print_table(names, [[row[name] for name in names] for row in rows])


def print_result(result: Any, sentence: str, *, as_json: bool, is_line: bool = False) -> None:
    """Print the result of a command as JSON, or a sentence about it."""
    if as_json:
        print_json(result, is_line=is_line)
    else:
        click.echo(sentence)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case timedelta():
            return str(timedelta(seconds=round(value.total_seconds())))
        case list() | tuple():
            return ", ".join(map(str, value)) or "-"
        case dict():
            return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
