"""Output of rows and messages of the bus."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from postroad.bus import Message
from postroad.cli.output import print_json, print_table

_MESSAGE_COLUMNS = ("iid", "added", "headers", "properties", "data")
# Every message has them, and they are the same for all messages of a queue.
_USUAL_HEADERS = {"seenby", "source_db", "destination", "enqueue_time"}


def print_facts(
    facts: Sequence[Any],
    *,
    as_json: bool,
    empty: str,
    columns: Sequence[str] | None = None,
) -> None:
    """Print rows of a view: all their fields as JSON, or some of them as a table."""
    if as_json:
        print_json([dataclasses.asdict(fact) for fact in facts])
    elif not facts:
        click.echo(empty, err=True)
    else:
        names = columns or [field.name for field in dataclasses.fields(facts[0])]
        print_table(
            [name.replace("_", " ") for name in names],
            [[getattr(fact, name) for name in names] for fact in facts],
        )


def print_messages(messages: Iterable[Message], *, as_json: bool, is_line: bool = False) -> None:
    """Print messages; one JSON object per line where they come one by one."""
    found = list(messages)
    if as_json:
        documents = [dataclasses.asdict(message) for message in found]
        if is_line:
            for document in documents:
                print_json(document, is_line=True)
        else:
            print_json(documents)
    elif is_line:
        for message in found:
            click.echo(f"{_time(message.added)}  {message.iid}  {_shown(message.data)}")
    elif not found:
        click.echo("there is no message", err=True)
    else:
        print_table(
            _MESSAGE_COLUMNS,
            [
                (
                    message.iid,
                    message.added,
                    _unusual(message.headers) or None,
                    dict(message.properties) or None,
                    _shown(message.data),
                )
                for message in found
            ],
        )


def _unusual(headers: Any) -> dict[str, str | None]:
    return {name: value for name, value in headers.items() if name not in _USUAL_HEADERS}


def _time(moment: datetime) -> str:
    return moment.astimezone().isoformat(sep=" ", timespec="milliseconds")


def _shown(data: Any) -> Any:
    if isinstance(data, bytes):
        return f"\\x{data.hex()}"
    return data
