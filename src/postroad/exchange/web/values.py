"""Values that requests carry, and how a body is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationError
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from postroad.exchange.content import parse
from postroad.exchange.errors import ContentInvalid

__all__ = ["FILE_CONTENT", "BigInteger", "Text", "answer", "body_of", "described", "parsed"]

Model = TypeVar("Model", bound=BaseModel)

LARGE_BYTES = 1 << 20
# Parsing a large body takes many times its size for a moment, so few are parsed at once.
_large = asyncio.Semaphore(2)

MAX_ERROR_LENGTH = 10_000

FILE_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The stored bytes, in their own media type.",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "X-Content-SHA256": {
                "description": "SHA-256 of the bytes, in hexadecimal.",
                "schema": {"type": "string"},
            }
        },
    }
}


def _storable(text: str) -> str:
    """Refuse what PostgreSQL cannot store."""
    if "\x00" in text:
        raise ValueError("must not contain the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text that can be written in UTF-8") from None
    return text


Text = Annotated[str, StringConstraints(max_length=MAX_ERROR_LENGTH), AfterValidator(_storable)]
BigInteger = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=True)]


@contextlib.asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[bytes]:
    """Give the body; few large ones are in use at once.

    It is received before it waits: a client that sends slowly holds up nobody.
    """
    try:
        body = await request.body()
    except ClientDisconnect as cut:
        raise ContentInvalid("the connection was closed before the body was complete") from cut
    if len(body) <= LARGE_BYTES:
        yield body
        return
    async with _large:
        yield body


def parsed(model: type[Model], text: bytes) -> Model:
    """Read a JSON body as a model. Raises ContentInvalid or RequestValidationError, both 422."""
    value = parse(text)
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in failure.errors()]
        raise RequestValidationError(faults) from failure


def answer(value: dict[str, Any], status_code: int = 200) -> Response:
    """Write a protocol answer."""
    headers = {}
    if value.get("retry_after") is not None:
        headers["Retry-After"] = str(int(value["retry_after"]))
    return Response(
        orjson.dumps(value), status_code, headers=headers, media_type="application/json"
    )


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that is read by `parsed`."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _resolved(schema, definitions)}},
        }
    }


def _resolved(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[-1]
            return _resolved(definitions[name], definitions)
        return {key: _resolved(value, definitions) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_resolved(value, definitions) for value in schema]
    return schema
