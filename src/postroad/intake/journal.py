"""The journal: every step of a file is one call of a function of schema intake, durable on return.

A call whose answer was lost is repeated: the functions are idempotent, because they check the token
of the lease or change nothing the second time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from postroad import trace
from postroad.intake.errors import IntakeError
from postroad.postgres import journal
from postroad.postgres.journal import Row

PATIENCE = timedelta(seconds=60)


class Journal(journal.Journal):
    """Calls functions of schema intake by their names over one connection."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, IntakeError, application_name="postroad intake", patience=PATIENCE)

    async def run(self, function: str, *parameters: object) -> Any:
        """Call a function that returns one value; its events belong to the current trace."""
        text = f"select intake.{_call(function, parameters)}{trace.FOLLOWED}"
        return await self.call(text.encode(), *parameters, trace.line())

    async def select(self, function: str, *parameters: object) -> list[Row]:
        """Call a function that returns rows."""
        text = f"select * from intake.{_call(function, parameters)}"  # noqa: S608 - names are ours
        return await self.rows(text.encode(), *parameters)


def _call(function: str, parameters: tuple[object, ...]) -> str:
    return f"{function}({', '.join(['%s'] * len(parameters))})"
