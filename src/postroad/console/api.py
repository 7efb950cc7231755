"""HTTP interface of the bus and the alerts: every list and action that they declare.

Callers are accounts of the console, with a token of `postroad console token`; their roles are the
same as on the pages, and what they do is in the audit log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request

from postroad.console.accounts import Role, Session
from postroad.console.context import Context
from postroad.console.errors import NotAllowed
from postroad.console.gate import current_session
from postroad.console.login import address_of
from postroad.console.pages import is_there
from postroad.operate import Action, Resource
from postroad.operate.http import add_action, add_list
from postroad.postgres.calls import Connection
from postroad.web.application import BEARER
from postroad.web.errors import TokenMissing
from postroad.web.tokens import bearer_token


def add_api(app: FastAPI, context: Context) -> None:
    """Add the calls below `/bus/v1` and `/alerts/v1` to an application."""
    calls = _Calls(context)
    for component in ("bus", "alerts"):
        if not is_there(f"postroad.{component}"):
            continue
        routes = APIRouter(
            prefix=f"/{component}/v1", tags=[component], dependencies=[Depends(BEARER)]
        )
        declared = list(_declared(f"postroad.{component}.resources"))
        for one in declared:
            if isinstance(one, Resource):
                path = f"/{one.plural}".replace("_", "-")
                read = partial(context.connections.run, one.page)
                add_list(routes, path, one, read, calls.reader)
        for one in declared:
            if isinstance(one, Action) and one.on is not None:
                add_action(routes, one, calls.run)
        app.include_router(routes)


def _declared(module: str) -> Iterator[Any]:
    """Yield the resources and actions of a module, each once."""
    seen = set()
    for value in vars(import_module(module)).values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Resource | Action) and id(one) not in seen:
                seen.add(id(one))
                yield one


class _Calls:
    def __init__(self, context: Context) -> None:
        self._context = context

    async def reader(self, request: Request) -> Session:
        """Return the caller, who may read. Raises TokenMissing."""
        return await self._caller(request, "viewer")

    async def _caller(self, request: Request, role: Role) -> Session:
        token = bearer_token(request)
        accounts, cache = self._context.accounts, self._context.cache
        session = await current_session(accounts, cache, token, address_of(request))
        if session is None:
            hint = "create one: postroad console token NAME"
            raise TokenMissing("the token is unknown or has ended", hint=hint)
        if not session.may(role):
            raise NotAllowed(f"the role {session.role} may not do this", hint=f"it needs {role}")
        return session

    async def run(
        self,
        request: Request,
        action: Action,
        arguments: Mapping[str, Any],
        filters: Mapping[str, Any] | None,
        is_dry_run: bool,
    ) -> Mapping[str, Any]:
        """Run an action as the caller, recorded unless it is a dry run."""
        session, context = await self._caller(request, action.role), self._context
        supplied = {"by": f"{session.account} (HTTP)", "is_dry_run": is_dry_run}
        # A name with an underscore at its end avoids a builtin one.
        names = {one.name.rstrip("_"): one.name for one in action.parameters}
        given = {names[name]: value for name, value in arguments.items()}

        async def work(connection: Connection) -> Mapping[str, Any]:
            if filters is None:
                return await action.run(connection, supplied, **given)
            facts: Mapping[str, Any] = {"count": 0}
            async for so_far in action.run_on_matching(connection, supplied, filters, **given):
                facts = so_far
            return facts

        async def dry(connection: Connection) -> Mapping[str, Any]:
            facts = await work(connection)
            await connection.rollback()
            return facts

        async def commit() -> Mapping[str, Any]:
            if filters is None:
                return await context.connections.run(work)
            # Each batch commits: one transaction for all rows would hold locks for long.
            async with context.connections.lend() as connection:
                return await work(connection)

        if is_dry_run:
            return await context.connections.run(dry)
        target = next((str(v) for v in given.values() if v), action.resource.plural)
        detail = {name: str(v) for name, v in {**given, **(filters or {})}.items() if v}
        done = await context.accounts.audited(
            session, f"{action.resource.component}.{action.verb}", target[:200], commit,
            {name: v for name, v in detail.items() if name not in action.secrets},
        )  # fmt: skip
        context.cache.expire()
        return done
