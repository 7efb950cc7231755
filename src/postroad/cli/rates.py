"""Rates and depths as they change: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Self

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from postroad.bus import ConsumerStatus

__all__ = ["RatesDisplay"]

_COLUMNS = (
    "queue", "consumer", "posted/s", "consumed/s", "depth", "leased", "dmq", "oldest",
)  # fmt: skip


class RatesDisplay:
    """Shows one row per queue and consumer; a context manager."""

    def __init__(self) -> None:
        console = Console()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def show(
        self,
        statuses: Sequence[ConsumerStatus],
        rates: Mapping[tuple[str, str], tuple[float, float]],
    ) -> None:
        """Show the present state in place of the former one; fresher rates win over the view's."""
        rows = [
            _cells(
                status,
                *rates.get(
                    (status.queue, status.consumer),
                    (status.posted_per_second or 0, status.consumed_per_second or 0),
                ),
            )
            for status in statuses
        ]
        if self._live is None:
            for row in rows:
                click.echo(
                    "  ".join(f"{name}={cell}" for name, cell in zip(_COLUMNS, row, strict=True))
                )
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, name in enumerate(_COLUMNS):
            table.add_column(
                name, justify="left" if index < 2 else "right", min_width=6, no_wrap=True
            )
        for row in rows:
            table.add_row(*map(Text, row))
        self._live.update(table, refresh=True)

    def say(self, sentence: str) -> None:
        """Show a sentence where the rows would be."""
        if self._live is None:
            click.echo(sentence)
        else:
            self._live.update(Text(sentence, style="red"), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def _cells(status: ConsumerStatus, posted: float, consumed: float) -> tuple[str, ...]:
    about = "~" if status.is_estimate else ""
    return (
        status.queue,
        status.consumer,
        f"{posted:,.0f}",
        f"{consumed:,.0f}",
        f"{about}{status.depth:,}",
        f"{status.leased:,}",
        f"{status.dmq:,}",
        _age(status.oldest_age),
    )


def _age(age: timedelta | None) -> str:
    if age is None:
        return "-"
    seconds = max(0.0, age.total_seconds())
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else str(timedelta(seconds=round(seconds)))
