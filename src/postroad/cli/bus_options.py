"""Parameters that commands of the bus share: how people write payloads, pairs and durations."""

from __future__ import annotations

import json
from typing import Any

import click

from postroad.bus.payload import Payload


def pair(value: str) -> tuple[str, str]:
    """Read `name=value`; the value may contain equals signs itself."""
    name, sign, rest = value.partition("=")
    if not (name and sign):
        raise click.BadParameter(f"{value!r} is not name=value")
    return name, rest


def consumer_option(command: Any) -> Any:
    """Add `--consumer`, by default `default`."""
    return click.option(
        "--consumer", default="default", show_default=True, help="The durable subscriber."
    )(command)


def pairs(given: tuple[tuple[str, str], ...]) -> dict[str, str] | None:
    """Gather repeated `name=value` options; None when there are none."""
    return dict(given) or None


def parse_payload(payload: Payload, text: str) -> Any:
    """Read what a person typed as the payload of a queue."""
    match payload:
        case "text":
            return text
        case "bytea":
            return text.encode()
        case "hstore" | "jsonb":
            try:
                return json.loads(text)
            except ValueError as error:
                example = '{"number": "4711"}' if payload == "hstore" else '{"number": 4711}'
                raise click.BadParameter(
                    f"the queue carries {payload}, and this is not JSON: {error}; e.g. '{example}'"
                ) from error
