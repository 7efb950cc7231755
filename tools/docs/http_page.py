"""The page of all HTTP endpoints, from the OpenAPI documents of the services."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI

from postroad.console.api import add_api
from postroad.console.application import add_health
from postroad.coordination.gateway.application import make_application
from postroad.coordination.gateway.shapes import Column, Shape
from postroad.exchange.web import create_app
from postroad.intake.api import create_api
from postroad.settings.exchange import ExchangeSettings
from postroad.web.application import prepare
from tools.docs.markdown import head, table

INTRODUCTION = """
Every endpoint of the HTTP services, from their OpenAPI documents. `postroad up` serves all of them
on one port; `postroad serve NAME` serves one of them on its own port. The OpenAPI document of a
running service has the types and limits, too; each section gives its address.

Parameters are those of the path and the query. A name in bold is required, or always present in an
answer. A page has `items` and the `cursor` of the next page. Errors are
`application/problem+json`, see [errors](errors.md).
"""

METHODS = ("get", "post", "put", "patch", "delete")
KEY = Column("Id", "bigint", None, True, False, False, "t.id")
ENTITY = Shape("DummyItem", "item", ("Id",), (KEY, replace(KEY, name="Name", type="text")))

Document = dict[str, Any]


def page() -> str:
    """Return the page."""
    parts = [head("HTTP endpoints", INTRODUCTION)]
    for title, note, document in services():
        parts.append(f"## {title}\n\n{note}\n")
        rows = [_row(document, *each) for each in operations(document)]
        parts.append(table(("call", "summary", "parameters", "body", "status"), rows))
        if models := sorted(_models(document)):
            parts.append(f"### Models: {title.lower()}\n")
            parts.append(table(("model", "fields"), models))
    return "\n".join(parts)


@cache
def services() -> tuple[tuple[str, str, Document], ...]:
    """Return title, note and OpenAPI document of each service. Nothing is started."""
    unused = cast("Any", None)
    owner = SimpleNamespace(journal=None, storage=None)
    exchange = create_app(ExchangeSettings(), cast("Any", owner), unused)
    web = prepare(FastAPI(title="Postroad", redoc_url=None))
    context = cast("Any", SimpleNamespace(connections=SimpleNamespace(run=print)))
    add_health(web, context)
    add_api(web, context)
    pools = unused, unused, unused
    gateway = make_application(
        pools,
        [ENTITY],
        [],
        after_timeout=timedelta(seconds=1),
        token="",
        is_stopping=lambda: False,
    )
    return (
        (
            "Exchange",
            "OpenAPI: `/exchange/v1/openapi.json`. The token is that of a client, see "
            "`postroad exchange clients`.",
            exchange.openapi(),
        ),
        (
            "Bus, alerts and health",
            "OpenAPI: `/openapi.json`. The token is that of an account of the console, see "
            "`postroad console token`.",
            web.openapi(),
        ),
        (
            "Intake",
            "OpenAPI: `/intake/openapi.json`. The token is the setting `intake.token`.",
            create_api(unused, "").openapi(),
        ),
        (
            "Coordination",
            "OpenAPI: `/coordination/v1/openapi.json`. The token is the setting "
            "`coordination.token`. Each tracked entity has the calls of `DummyItem`, under its own "
            "name and with its own columns.",
            gateway.openapi(),
        ),
    )


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Return method, path and description of each call."""
    for path, calls in document["paths"].items():
        for method in METHODS:
            if method in calls:
                yield method.upper(), path, calls[method]


def _row(document: Document, method: str, path: str, call: Document) -> tuple[str, ...]:
    summary = call.get("description") or call.get("summary", "")
    parameters = [
        f"**`{one['name']}`**" if one.get("required") else f"`{one['name']}`"
        for one in call.get("parameters", ())
    ]
    statuses = [_answer(document, *each) for each in sorted(call["responses"].items())]
    return (
        f"`{method} {path}`",
        summary.split("\n\n")[0],
        " ".join(parameters),
        _schema(next(iter(call.get("requestBody", {}).get("content", {}).values()), {})),
        ", ".join(statuses),
    )


def _answer(document: Document, status: str, response: Document) -> str:
    content = response.get("content", {}).get("application/json", {})
    model = "" if status >= "4" else _schema(content)
    if model.startswith("`Page_"):
        # A page of a list: its rows, and the cursor of the next page.
        page = document["components"]["schemas"][model.strip("`")]
        model = (
            f"page of {_schema({'schema': page['properties']['items']}).removeprefix('array of ')}"
        )
    return f"{status} {model}".strip()


def _schema(content: Document) -> str:
    """Name the model of a body, or of the rows of a list."""
    schema = content.get("schema", {})
    kinds = [schema, *schema.get("anyOf", ())]
    for kind in kinds:
        if "$ref" in kind:
            return f"`{_name(kind)}`"
        if "$ref" in kind.get("items", {}):
            return f"array of `{_name(kind['items'])}`"
    return ""


def _name(reference: Document) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _models(document: Document) -> Iterator[tuple[str, str]]:
    for name, model in document.get("components", {}).get("schemas", {}).items():
        required = model.get("required", ())
        fields = [
            f"**`{field}`**" if field in required else f"`{field}`"
            for field in model.get("properties", ())
        ]
        if fields and not name.startswith(("Page_", "HTTPValidation", "Validation", "Problem")):
            yield f"`{name}`", " ".join(fields)
