"""Shared by every HTTP service: errors as problem+json, tokens, pages, limits, the server.

A component builds its routes with FastAPI and calls `prepare(app)` once; from then on each error of
Postroad's tree, each refused body and each unavailable database answers as `application/
problem+json` with the status of its kind.

Names are imported when they are first used: a command that needs a token does not load FastAPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroad.web.application import BEARER, prepare
    from postroad.web.cursors import decode_cursor, encode_cursor
    from postroad.web.errors import (
        BodyTooLarge,
        Conflict,
        CursorInvalid,
        Forbidden,
        RequestInvalid,
        ResourceMissing,
        TokenMissing,
        WebError,
    )
    from postroad.web.limits import BodyLimit, TokenCheck
    from postroad.web.pages import Page, page_of
    from postroad.web.problems import PROBLEM_MEDIA_TYPE, Problem, problem_responses
    from postroad.web.server import WebServer
    from postroad.web.tokens import bearer_token, hash_token, is_token_of, new_token
    from postroad.web.tracing import given_trace

__all__ = [
    "BEARER",
    "PROBLEM_MEDIA_TYPE",
    "BodyLimit",
    "BodyTooLarge",
    "Conflict",
    "CursorInvalid",
    "Forbidden",
    "Page",
    "Problem",
    "RequestInvalid",
    "ResourceMissing",
    "TokenCheck",
    "TokenMissing",
    "WebError",
    "WebServer",
    "bearer_token",
    "decode_cursor",
    "encode_cursor",
    "given_trace",
    "hash_token",
    "is_token_of",
    "new_token",
    "page_of",
    "prepare",
    "problem_responses",
]

_HOMES = {
    **dict.fromkeys(("BEARER", "prepare"), "application"),
    **dict.fromkeys(("decode_cursor", "encode_cursor"), "cursors"),
    **dict.fromkeys(("Page", "page_of"), "pages"),
    **dict.fromkeys(("BodyLimit", "TokenCheck"), "limits"),
    **dict.fromkeys(("PROBLEM_MEDIA_TYPE", "Problem", "problem_responses"), "problems"),
    "WebServer": "server",
    **dict.fromkeys(("bearer_token", "hash_token", "is_token_of", "new_token"), "tokens"),
    "given_trace": "tracing",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    globals()[name] = found = getattr(module, name)
    return found
