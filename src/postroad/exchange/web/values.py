"""Routing of requests, parsing of bodies, and writing of answers.

A route reads the token first, then the body, which is parsed once and strictly. A handler writes
its answer as bytes, so that stored JSON is sent as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from postroad.exchange.content import parse
from postroad.exchange.errors import ContentInvalid
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.reader import stream
from postroad.exchange.web.identity import caller_of
from postroad.web.application import BEARER
from postroad.web.problems import problem_responses

LARGE_BYTES = 1 << 20
# Parsing a large body briefly takes many times its size, so few are parsed at the same time.
_large = asyncio.Semaphore(2)

MAX_ERROR_LENGTH = 10_000

# The failures of every call with a body.
BODY = (413, 415, 422)
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_DIGEST = {"description": "SHA-256 of the bytes, in hexadecimal.", "schema": {"type": "string"}}
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The stored bytes, in their own media type.",
        "content": {"*/*": _BINARY},
        "headers": {"X-Content-SHA256": _DIGEST},
    }
}
RAW_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}


def _storable(text: str) -> str:
    """Refuse text that PostgreSQL cannot store."""
    if "\x00" in text:
        raise ValueError("must not contain the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text that can be written in UTF-8") from None
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_ERROR_LENGTH), AfterValidator(_storable)]
BigInteger = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=True)]


class DirectRoute(APIRoute):
    """Calls its handler with the parts of the path, the caller and the parsed body.

    FastAPI alone would read the body before it checks the token, accept JSON that cannot be stored,
    and take longer to resolve dependencies than many calls take. It still handles query parameters.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        found = self.dependant
        self._callers = [str(one.name) for one in found.dependencies if one.call is caller_of]
        self._bodies: list[tuple[str, bool, TypeAdapter[Any]]] = []
        for one in found.body_params:
            annotation: Any = one.field_info.annotation
            self._bodies.append((one.name, one.field_info.is_required(), TypeAdapter(annotation)))
        if not found.query_params:
            self.app = self._serve

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that handles a request."""
        return super().get_route_handler() if self.dependant.query_params else self._handle

    async def _handle(self, request: Request) -> Response:
        values = {one.name: request.path_params[one.name] for one in self.dependant.path_params}
        if self.dependant.request_param_name:
            values[self.dependant.request_param_name] = request
        for name in self._callers:
            values[name] = await caller_of(request)
        for name, is_required, adapter in self._bodies:
            try:
                body = await request.body()
            except ClientDisconnect as cut:
                raise ContentInvalid(
                    "the connection was closed before the body was complete"
                ) from cut
            if is_required or body.strip():
                values[name] = await _parsed(adapter, body)
        response: Response = await self.endpoint(**values)
        return response

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._handle(Request(scope, receive, send))
        await response(scope, receive, send)


async def _parsed(adapter: TypeAdapter[Any], body: bytes) -> Any:
    """Parse a JSON body. Raises ContentInvalid or RequestValidationError, both 422."""
    async with _large if len(body) > LARGE_BYTES else contextlib.nullcontext():
        try:
            return adapter.validate_python(parse(body))
        except ValidationError as failure:
            faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in failure.errors()]
            raise RequestValidationError(faults) from failure


@dataclass(frozen=True)
class Endpoints:
    """Adds handlers with one tag to an application."""

    app: FastAPI
    prefix: str
    tag: str

    def __call__(
        self, method: str, path: str, model: Any, *problems: int, **more: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Add a handler; `model` describes its answer, `problems` its failures."""
        answers = model if isinstance(model, dict) else {200: {"model": model}}
        return self.app.router.api_route(
            self.prefix + path,
            methods=[method],
            tags=[self.tag],
            response_model=None,
            responses={**answers, **problem_responses(*sorted({401, 503, *problems}))},
            # Describes the token in OpenAPI; the route checks it.
            dependencies=[Security(BEARER)],
            **more,
        )


def file_answer(mover: Mover, move: Move) -> Response:
    """Stream a stored file."""
    return StreamingResponse(
        stream(mover, move),
        media_type=move.media_type or "application/json",
        headers={"Content-Length": str(move.size), "X-Content-SHA256": move.sha256},
    )


def answer(value: dict[str, Any], status_code: int = 200) -> Response:
    """Write a protocol answer."""
    after = value.get("retry_after")
    headers = {} if after is None else {"Retry-After": str(int(after))}
    return Response(
        orjson.dumps(value), status_code, headers=headers, media_type="application/json"
    )
