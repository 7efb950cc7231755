"""HTTP interface of the bus and the alerts: every list and action that they declare.

Callers are accounts of the console, with a token of `postroad console token`; their roles are the
same as on the pages, and their actions are in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request

import postroad.alerts.resources as alerts
import postroad.bus.resources as bus
from postroad.bus.asyncapi import asyncapi
from postroad.console.accounts import Session
from postroad.console.context import Context
from postroad.console.errors import NotAllowed
from postroad.console.gate import current_session
from postroad.console.login import address_of
from postroad.operate import Action, Resource
from postroad.operate.http import add_action, add_list
from postroad.postgres.calls import Connection
from postroad.web.application import BEARER
from postroad.web.errors import TokenMissing
from postroad.web.problems import problem_responses
from postroad.web.tokens import bearer_token


def add_api(app: FastAPI, context: Context) -> None:
    """Add the calls below `/bus/v1` and `/alerts/v1` to an application."""
    caller = partial(_caller, context)
    secured, problems = [Depends(BEARER)], problem_responses(401, 503)

    @app.get("/bus/v1/asyncapi.json", tags=["bus"], dependencies=secured, responses=problems)
    async def document(request: Request) -> dict[str, Any]:
        """Return the queues, consumers and schemas as an AsyncAPI 3.0 document."""
        await caller(request)
        return await context.connections.run(asyncapi)

    for component, module in (("bus", bus), ("alerts", alerts)):
        prefix = f"/{component}/v1"
        routes = APIRouter(prefix=prefix, tags=[component], dependencies=secured)
        declared = _declared(module)
        for one in declared:
            if isinstance(one, Resource):
                path = f"/{one.plural}".replace("_", "-")
                add_list(routes, path, one, partial(context.connections.run, one.page), caller)
        for one in declared:
            if isinstance(one, Action) and one.on is not None:
                add_action(routes, one, partial(_run, context))
        app.include_router(routes)


def _declared(module: ModuleType) -> list[Any]:
    found = {}
    for value in vars(module).values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Resource | Action):
                found[id(one)] = one
    return list(found.values())


async def _caller(context: Context, request: Request, *, is_strict: bool = False) -> Session:
    """Return the account of the token; with `is_strict` not from the cache. Raises TokenMissing."""
    token, address = bearer_token(request), address_of(request)
    if is_strict:
        session = await context.accounts.session(token, address)
    else:
        session = await current_session(context.accounts, context.cache, token, address)
    if session is None:
        hint = "create one: postroad console token NAME"
        raise TokenMissing("the token is unknown or has ended", hint=hint)
    return session


async def _run(
    context: Context,
    request: Request,
    action: Action,
    arguments: Mapping[str, Any],
    filters: Mapping[str, Any] | None,
    is_dry_run: bool,
) -> Mapping[str, Any]:
    session = await _caller(context, request, is_strict=True)
    given = {name: str(v) for name, v in {**arguments, **(filters or {})}.items() if v}
    target = next((given[name] for name in arguments if name in given), action.resource.plural)
    verb = f"{action.resource.component}.{action.verb}"
    recorded = {name: value for name, value in given.items() if name not in action.secrets}
    entry = session, verb, target[:200]
    if not session.may(action.role):
        await context.accounts.begin_audit(*entry, recorded, outcome="refused")
        hint = f"it needs {action.role}"
        raise NotAllowed(f"the role {session.role} may not do this", hint=hint)
    supplied = {"by": f"{session.account} (HTTP)", "is_dry_run": is_dry_run}

    async def work(connection: Connection) -> Mapping[str, Any]:
        if filters is None:
            facts = await action.run(connection, supplied, **arguments)
        else:
            facts = {"count": 0}
            async for so_far in action.run_on_matching(connection, supplied, filters, **arguments):
                facts = so_far
        if is_dry_run:
            await connection.rollback()
        return facts

    async def commit() -> Mapping[str, Any]:
        if filters is None:
            return await context.connections.run(work)
        # Each batch is committed: one transaction for all rows would hold locks for a long time.
        async with context.connections.lend() as connection:
            return await work(connection)

    if is_dry_run:
        return await context.connections.run(work)
    done = await context.accounts.audited(*entry, commit, recorded)
    context.cache.expire()
    return done
