"""The stored bytes of a message, and how requests and answers carry them.

A JSON body is stored as compact JSON in UTF-8 (what `json.dumps(body, ensure_ascii=False,
separators=(",", ":"))` returns), so that the recipient can compute its digest. Other
content is stored as the sender's own bytes.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic_core import from_json

from postroad.exchange.errors import ContentInvalid

MEDIA_TYPE_DEFAULT = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Content:
    """The stored bytes of one file."""

    stored: bytes
    sha256: str
    media_type: str | None
    is_group: bool = False

    @property
    def size(self) -> int:
        """The number of stored bytes."""
        return len(self.stored)


def parse(text: bytes) -> Any:
    """Read JSON strictly: no NaN, no lone surrogates, no precision lost. Raises ContentInvalid.

    A UTF-8 byte order mark, which many Windows programs write, is ignored.
    """
    try:
        return from_json(text.removeprefix(codecs.BOM_UTF8), allow_inf_nan=False)
    except (ValueError, RecursionError) as failure:
        raise ContentInvalid(f"the body is not JSON: {failure}") from failure


def stored_json(value: Any, *, is_group: bool = False) -> Content:
    """Return a JSON value as it is stored. Raises ContentInvalid."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        stored = text.encode()
    except (ValueError, RecursionError) as failure:
        raise ContentInvalid(f"the body cannot be stored: {failure}") from failure
    return Content(stored, hashlib.sha256(stored).hexdigest(), None, is_group)


def binary(content_base64: str, media_type: str | None) -> Content:
    """Return other content as it is stored. Raises ContentInvalid."""
    try:
        stored = base64.b64decode(content_base64, validate=True)
    except ValueError as failure:
        raise ContentInvalid(f"content_base64 is not base64: {failure}") from failure
    return Content(stored, hashlib.sha256(stored).hexdigest(), media_type or MEDIA_TYPE_DEFAULT)


def content_of(given: Any) -> Content:
    """Return the content of a request that carries `messages`, `content_base64` or `body`."""
    if getattr(given, "messages", None) is not None:
        group = [{"id": each.id, "body": each.body} for each in given.messages]
        return stored_json(group, is_group=True)
    if given.content_base64 is not None:
        return binary(given.content_base64, given.media_type)
    return stored_json(given.body)


def digest_of(*parts: Any) -> str:
    """Return the digest of a request; two equal requests have the same."""
    return hashlib.sha256(json.dumps(parts, default=str, sort_keys=True).encode()).hexdigest()


def inline(stored: bytes, media_type: str | None) -> dict[str, Any]:
    """Return stored bytes as part of an answer."""
    if media_type is not None:
        return {"content_base64": base64.b64encode(stored).decode(), "media_type": media_type}
    return {"body": orjson.Fragment(stored)}
