"""Output of rows and messages of the bus."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import click

from postroad.bus import Message
from postroad.cli.output import print_json, print_table

_MESSAGE_COLUMNS = ("iid", "added", "headers", "properties", "data")
# Omitted: every message has them, and they are equal for all messages of a queue.
_USUAL_HEADERS = {"seenby", "source_db", "destination", "enqueue_time"}


def print_messages(messages: Iterable[Message], *, as_json: bool, is_line: bool = False) -> None:
    """Print messages; as JSON, one object per line if they arrive one by one."""
    found = list(messages)
    if as_json:
        documents: list[Any] = [dataclasses.asdict(message) for message in found]
        for document in documents if is_line else [documents]:
            print_json(document, is_line=is_line)
    elif is_line:
        for message in found:
            added = message.added.astimezone().isoformat(sep=" ", timespec="milliseconds")
            click.echo(f"{added}  {message.iid}  {_shown(message.data)}")
    elif not found:
        click.echo("there is no message", err=True)
    else:
        print_table(_MESSAGE_COLUMNS, [_row(message) for message in found])


def _row(message: Message) -> tuple[Any, ...]:
    headers = {k: v for k, v in message.headers.items() if k not in _USUAL_HEADERS}
    properties = dict(message.properties)
    return message.iid, message.added, headers or None, properties or None, _shown(message.data)


def _shown(data: Any) -> Any:
    return f"\\x{data.hex()}" if isinstance(data, bytes) else data
