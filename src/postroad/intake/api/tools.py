"""The pool, the engine and the vault with which routes work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from fastapi import Request
from psycopg import Connection
from psycopg_pool import ConnectionPool

from postroad.intake.engine import Engine
from postroad.vault import Vault

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Tools:
    """What the application opens at its start."""

    pool: ConnectionPool
    engine: Engine
    vault: Vault


def tools(request: Request) -> Tools:
    """Return the tools of the application."""
    found: Tools = request.app.state.tools
    return found


def ask(
    request: Request,
    call: Callable[Concatenate[Connection[Any], P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function of `status` or `operations` in a transaction of its own."""
    with tools(request).pool.connection() as connection:
        return call(connection, *args, **kwargs)
