"""HTTP lists and actions of resources, with their OpenAPI models.

A list has filters, sort and cursor as query parameters. An action has the arguments and options of
its command in the body; `…/all` runs it on all rows that match the filters in the query.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model
from starlette.responses import JSONResponse, Response

from postroad.operate.action import Action
from postroad.operate.resource import Kind, Page, Resource
from postroad.web.pages import Page as PageModel
from postroad.web.problems import problem_responses

MAX_LIMIT = 1000
LIMIT_DEFAULT = 100
TYPES: dict[Kind, Any] = {
    "id": int,
    "number": int,
    "alarm": int,
    "bytes": int,
    "rate": float,
    "boolean": bool,
    "moment": datetime,
    "since": datetime,
    "duration": float | timedelta,
    "list": list[str],
    "json": Any,
}


@cache
def model_of(resource: Resource) -> type[BaseModel]:
    """Return the model of a row, for OpenAPI."""
    fields: dict[str, Any] = {}
    for column in resource.columns:
        kind = TYPES.get(column.kind, str)
        is_null = column.is_nullable and column.name not in (resource.key, resource.row_name)
        old = f"Deprecated name of {column.replaced_by}." if column.replaced_by else ""
        described = Field(description=old or column.help or column.title, alias=column.name)
        fields[_field(column.name)] = (Annotated[kind | None if is_null else kind, described], ...)
    name = "".join(part.title() for part in resource.name.replace("_", ".").split("."))
    return create_model(f"{name}Row", **fields)


def _field(name: str) -> str:
    """Return the name of a field that its alias names: `schema` is a method of BaseModel."""
    return f"{name}_" if hasattr(BaseModel, name) else name


def add_list(
    routes: APIRouter,
    path: str,
    resource: Resource,
    read: Callable[..., Awaitable[Page]],
    check: Callable[[Request], Awaitable[object]] | None = None,
    *,
    is_array: bool = False,
) -> None:
    """Add a list of a resource.

    `check` raises an error if the caller may not read it. `read` takes the arguments of
    `Resource.page` without the connection. With `is_array` the response is an array of rows, by
    default as many as a page can have, and the header `Link` has the URL of the next page.
    """

    async def answer(request: Request, **given: Any) -> Response:
        if check is not None:
            await check(request)
        sort, order = given.pop("sort"), given.pop("order")
        after, limit = given.pop("cursor"), given.pop("limit")
        page = await read(
            given,
            sort=sort,
            is_descending=None if order is None else order == "desc",
            after=after,
            limit=limit,
        )
        if not is_array:
            return JSONResponse(jsonable_encoder({"items": page.rows, "cursor": page.cursor}))
        # Like FastAPI's serialisation of a single row: durations in ISO 8601.
        rows = adapter.dump_json(adapter.validate_python(page.rows))
        response = Response(rows, media_type="application/json")
        if page.cursor is not None:
            following = request.url.include_query_params(cursor=page.cursor)
            response.headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
        return response

    model = model_of(resource)
    adapter = TypeAdapter(list[model])  # type: ignore[valid-type]
    size = MAX_LIMIT if is_array else LIMIT_DEFAULT
    parameters = _parameters(resource, size)
    answer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    answer.__name__ = f"list_{resource.name.replace('.', '_')}"
    answer.__doc__ = resource.summary
    routes.add_api_route(
        path,
        answer,
        response_model=None,
        responses={
            200: {"model": list[model] if is_array else PageModel[model]},  # type: ignore[valid-type]
            **problem_responses(401, 403, 422, 503),
        },
    )


def add_action(
    routes: APIRouter, action: Action, run: Callable[..., Awaitable[Mapping[str, Any]]]
) -> None:
    """Add the calls of an action: on rows named in the body, and on all that match a filter.

    `run` takes the request, the action, the arguments, the filters or None, and whether it is a dry
    run; it checks the caller's right and returns the facts of `Action.run`.
    """
    resource = action.resource
    path = f"/{resource.plural}/{action.verb}".replace("_", "-")
    name = f"{action.verb}_{resource.name.replace('.', '_')}".replace("-", "_")

    def add(path: str, name: str, fields: Mapping[str, Any], filters: Any) -> None:
        body = create_model(f"{name.title().replace('_', '')}Given", __config__=_STRICT, **fields)

        async def answer(request: Request, given: Any, **where: Any) -> Response:
            arguments = {names.get(name, name): value for name, value in given}
            is_dry_run = arguments.pop("is_dry_run")
            found = None if filters is None else where
            facts = await run(request, action, arguments, found, is_dry_run)
            done = {"status": "OK", **facts, "is_dry_run": is_dry_run}
            return JSONResponse(jsonable_encoder(done))

        parameters = [_keyword("request", Request), _keyword("given", body), *(filters or ())]
        answer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        answer.__name__, answer.__doc__ = name, action.summary.partition("\n\nExample:")[0]
        problems = problem_responses(401, 403, 404, 409, 422, 503)
        routes.add_api_route(
            path, answer, methods=["POST"], response_model=None,
            responses={200: {"model": dict[str, Any]}, **problems},
        )  # fmt: skip

    # The underscore at the end of a name avoids a builtin one.
    names = {_field(one.name.rstrip("_")): one.name for one in action.parameters}
    dry = Annotated[bool, Field(description="Change nothing, only report what would be done.")]
    fields: dict[str, Any] = {"is_dry_run": (dry, False)}
    for one in action.parameters:
        if one.name == "by":
            # The caller is identified by the token; a command may name another user.
            continue
        known = _INTEGERS.get(one.type, one.type)
        kind = known if one.is_required else known | None
        public, default = one.name.rstrip("_"), ... if one.is_required else one.default
        fields[_field(public)] = (kind, Field(default, description=one.help, alias=public))
    add(path, name, fields, None)
    if action.is_bulk:
        taken = {action.parameters[0].name, *action.columns, *(f.name for f in resource.filters)}
        rest = {name: one for name, one in fields.items() if name not in taken}
        add(f"{path}/all", f"{name}_all", rest, _filters(resource))


_STRICT = ConfigDict(extra="forbid")
_BigInteger = Annotated[int, Field(ge=-(2**63), lt=2**63)]
# The database functions do not accept larger numbers.
_INTEGERS: Mapping[Any, Any] = {int: _BigInteger, Sequence[int]: Sequence[_BigInteger]}


def _keyword(name: str, annotation: Any, **more: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **more)


def _parameter(name: str, kind: Any, default: Any, help_: str, **limits: Any) -> inspect.Parameter:
    return _keyword(name, Annotated[kind, Query(description=help_, **limits)], default=default)


def _parameters(resource: Resource, size: int) -> list[inspect.Parameter]:
    help_ = "The cursor of the previous page. A page of a search may be empty and still have one."
    names = Literal[tuple(resource.sort_keys)]  # type: ignore[valid-type]
    return [
        _keyword("request", Request),
        _parameter("limit", int, size, "Rows per page.", ge=1, le=MAX_LIMIT),
        _parameter("cursor", str | None, None, help_),
        _parameter("sort", names | None, None, "The column to sort by."),
        _parameter("order", Literal["asc", "desc"] | None, None, "asc or desc."),
        *_filters(resource),
    ]


def _filters(resource: Resource) -> list[inspect.Parameter]:
    found = []
    for one in resource.filters:
        kind: Any = Literal[tuple(one.choices)] if one.choices else bool if one.is_flag else str
        found.append(_parameter(one.name, kind | None, None, one.help or one.title))
    return found
