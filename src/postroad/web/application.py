"""Answers errors as problem+json, follows traces, and serves the documentation page."""

from __future__ import annotations

import html
import json
import logging
from http import HTTPStatus
from importlib import resources
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from psycopg_pool import PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from postroad import trace
from postroad.backoff import CONNECTION_LOST
from postroad.errors import PostroadError
from postroad.web.errors import RequestInvalid
from postroad.web.problems import problem_of, problem_response, problem_with

# The security scheme of every service, for OpenAPI.
BEARER = HTTPBearer(auto_error=False, description="The token that an administrator issued.")

logger = logging.getLogger(__name__)

DOCS_FILES = {
    "start.js": "text/javascript",
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
}
# Swagger UI sets styles of elements and draws icons from data: URLs; its scripts are files.
DOCS_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DOCS_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="{docs}/swagger-ui.css"></head>
<body><div id="ui"></div>
<script src="{docs}/swagger-ui-bundle.js"></script><script src="{docs}/start.js"></script>
</body></html>
"""


def prepare(app: FastAPI) -> FastAPI:
    """Register the error handlers and the documentation page; return the application."""
    _serve_docs(app)
    app.add_middleware(TraceContext)
    app.add_exception_handler(PostroadError, _own)
    app.add_exception_handler(RequestValidationError, _refused_body)
    app.add_exception_handler(HTTPException, _http)
    for unavailable in (*CONNECTION_LOST, PoolTimeout):
        app.add_exception_handler(unavailable, _unavailable)
    for invalid in (psycopg.DataError, psycopg.errors.CheckViolation):
        app.add_exception_handler(invalid, _invalid_value)
    app.add_exception_handler(Exception, _unforeseen)
    return app


class TraceContext:
    """ASGI middleware: the header `traceparent` is followed while the request is served."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve inside the trace."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("traceparent")
        with trace.following(given or trace.new()):
            await self.app(scope, receive, send)


def _serve_docs(app: FastAPI) -> None:
    """Serve Swagger UI from the package that ships it instead of from another site."""
    docs_url, openapi_url = app.docs_url, app.openapi_url
    if docs_url is None or openapi_url is None:
        return
    replaced = {docs_url, app.swagger_ui_oauth2_redirect_url}
    app.router.routes = [
        route for route in app.router.routes if getattr(route, "path", None) not in replaced
    ]
    script = f"SwaggerUIBundle({json.dumps({'url': openapi_url, 'dom_id': '#ui'})})"
    page = DOCS_PAGE.format(title=html.escape(app.title), docs=docs_url)

    async def answer(request: Request) -> Response:
        name = request.path_params.get("name")
        if name is None:
            return HTMLResponse(page, headers={"Content-Security-Policy": DOCS_POLICY})
        if name == "start.js":
            return Response(script, media_type=DOCS_FILES[name])
        if name not in DOCS_FILES:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        content = resources.files("fastapi_swagger").joinpath("resources", name).read_bytes()
        return Response(content, media_type=DOCS_FILES[name])

    for path in (docs_url, f"{docs_url}/{{name}}"):
        app.add_api_route(path, answer, include_in_schema=False, response_model=None)


# Starlette calls each handler with errors of the class that it is registered for.


async def _own(_: Request, failure: Any) -> JSONResponse:
    problem = problem_of(failure)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning("request_failed", extra={"code": failure.code, "detail": failure.message})
    return problem_response(problem)


async def _refused_body(_: Request, failure: Any) -> JSONResponse:
    # Only the location and the reason, because the input itself may contain a secret.
    faults = [
        {"where": ".".join(str(part) for part in fault["loc"]), "why": fault["msg"]}
        for fault in failure.errors()
    ]
    first = faults[0] if faults else {"where": "body", "why": "cannot be read"}
    invalid = RequestInvalid(f"{first['where']}: {first['why']}")
    return problem_response(problem_of(invalid), errors=faults)


async def _http(_: Request, failure: Any) -> JSONResponse:
    status, detail = HTTPStatus(failure.status_code), str(failure.detail)
    answer = problem_response(problem_with(status, detail, f"http_{status}"))
    answer.headers.update(failure.headers or {})
    return answer


async def _unavailable(_: Request, failure: Exception) -> JSONResponse:
    logger.warning("database_unavailable", extra={"detail": str(failure).strip()})
    problem = problem_with(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the database is not available",
        "database_unavailable",
        type="urn:postroad:error:database_unavailable",
        hint="send the same request again; it is idempotent",
        retryable=True,
    )
    return problem_response(problem)


async def _invalid_value(_: Request, failure: Any) -> JSONResponse:
    logger.info("request_value_invalid", extra={"detail": str(failure).strip()})
    rule = (failure.diag.constraint_name or "").replace("_", " ")
    detail = f"a value violates the constraint: {rule}" if rule else "a value cannot be stored"
    return problem_response(problem_of(RequestInvalid(detail)))


async def _unforeseen(request: Request, failure: Exception) -> JSONResponse:
    where = {"method": request.method, "path": request.url.path}
    logger.error("request_failed", exc_info=failure, extra=where)
    detail, hint = "an unexpected error occurred", "see the log of the server"
    problem = problem_with(HTTPStatus.INTERNAL_SERVER_ERROR, detail, "unforeseen", hint=hint)
    return problem_response(problem, error=type(failure).__name__)
