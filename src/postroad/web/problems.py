"""Errors as `application/problem+json` (RFC 9457): one format for every component."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse

from postroad.errors import Kind, PostroadError

logger = logging.getLogger(__name__)

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1

STATUS_OF_KIND: dict[Kind, int] = {
    "error": 500,
    "usage": 422,
    "not_found": 404,
    "refused": 409,
    "unavailable": 503,
}


class Problem(BaseModel):
    """The body of an error response."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None
    retryable: bool = False


def problem_of(failure: PostroadError) -> Problem:
    """Return the problem of an error of Postroad."""
    status = getattr(failure, "status", None)
    if not isinstance(status, int):
        status = STATUS_OF_KIND[failure.kind]
    return Problem(
        type=f"urn:postroad:error:{failure.code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=failure.message,
        code=failure.code,
        hint=failure.hint,
        retryable=failure.retryable or status == HTTPStatus.SERVICE_UNAVAILABLE,
    )


def problem_with(status: HTTPStatus, detail: str, code: str, **more: Any) -> Problem:
    """Return a problem that is not an error of Postroad; `more` are further members."""
    return Problem(title=status.phrase, status=status, detail=detail, code=code, **more)


def problem_response(problem: Problem, **more: Any) -> JSONResponse:
    """Answer with a problem; `more` are additional members, such as refused fields."""
    headers = {}
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return JSONResponse(
        {**problem.model_dump(exclude_none=True), **more},
        status_code=problem.status,
        headers=headers,
        media_type=PROBLEM_MEDIA_TYPE,
    )


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route for the OpenAPI document."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "model": Problem,
            "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
        }
        for status in statuses
    }
