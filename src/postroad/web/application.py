"""Turns an application's failures into problems: ours, refused bodies, an unavailable database."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from psycopg_pool import PoolTimeout
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from postroad.errors import PostroadError
from postroad.web.errors import RequestInvalid
from postroad.web.problems import Problem, problem_of, problem_response
from postroad.web.tracing import TraceContext

__all__ = ["BEARER", "prepare"]

# The security scheme of every service, for OpenAPI.
BEARER = HTTPBearer(auto_error=False, description="The token that an administrator issued.")

logger = logging.getLogger(__name__)


def prepare(app: FastAPI) -> FastAPI:
    """Give an application the house's answers to failures; returns it."""
    app.add_middleware(TraceContext)
    app.add_exception_handler(PostroadError, _own)
    app.add_exception_handler(RequestValidationError, _refused_body)
    app.add_exception_handler(HTTPException, _http)
    for unavailable in (psycopg.OperationalError, PoolTimeout):
        app.add_exception_handler(unavailable, _unavailable)
    app.add_exception_handler(psycopg.DataError, _invalid_value)
    app.add_exception_handler(Exception, _unforeseen)
    return app


async def _own(_: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, PostroadError)  # noqa: S101 - registered for this class
    problem = problem_of(failure)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning("request_failed", extra={"code": failure.code, "detail": failure.message})
    return problem_response(problem)


async def _refused_body(_: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, RequestValidationError)  # noqa: S101 - registered for this class
    # Only where and why: the input itself may hold a secret, and is known to the caller.
    faults = [
        {"where": ".".join(str(part) for part in fault["loc"]), "why": fault["msg"]}
        for fault in failure.errors()
    ]
    first = faults[0] if faults else {"where": "body", "why": "cannot be read"}
    return problem_response(
        Problem(
            type="urn:postroad:error:web_request_invalid",
            title=HTTPStatus.UNPROCESSABLE_ENTITY.phrase,
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            detail=f"{first['where']}: {first['why']}",
            code="web_request_invalid",
        ),
        errors=faults,
    )


async def _http(_: Request, failure: Exception) -> JSONResponse:
    assert isinstance(failure, HTTPException)  # noqa: S101 - registered for this class
    phrase = HTTPStatus(failure.status_code).phrase
    answer = problem_response(
        Problem(
            title=phrase,
            status=failure.status_code,
            detail=str(failure.detail),
            code=f"http_{failure.status_code}",
        )
    )
    answer.headers.update(failure.headers or {})
    return answer


async def _unavailable(_: Request, failure: Exception) -> JSONResponse:
    logger.warning("database_unavailable", extra={"detail": str(failure).strip()})
    return problem_response(
        Problem(
            type="urn:postroad:error:database_unavailable",
            title=HTTPStatus.SERVICE_UNAVAILABLE.phrase,
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            detail="the database is not available",
            code="database_unavailable",
            hint="send the same request again; repeating it is harmless",
            retryable=True,
        )
    )


async def _invalid_value(_: Request, failure: Exception) -> JSONResponse:
    # Such as text with NUL, or a number out of range: the request is to blame, not the server.
    logger.info("request_value_invalid", extra={"detail": str(failure).strip()})
    return problem_response(problem_of(RequestInvalid("the database cannot store a value of it")))


async def _unforeseen(request: Request, failure: Exception) -> JSONResponse:
    logger.error(
        "request_failed",
        exc_info=failure,
        extra={"method": request.method, "path": request.url.path},
    )
    unexpected: dict[str, Any] = {"error": type(failure).__name__}
    return problem_response(
        Problem(
            title=HTTPStatus.INTERNAL_SERVER_ERROR.phrase,
            status=HTTPStatus.INTERNAL_SERVER_ERROR,
            detail="the server met an error that it did not foresee",
            code="unforeseen",
            hint="the server's log holds the details",
        ),
        **unexpected,
    )
