"""What can be wrong with a request, whatever room it is for.

```
WebError
├── TokenMissing       401  no token, or one that nobody has
├── Forbidden          403  known, and not allowed to
├── ResourceMissing    404
├── Conflict           409  contradicts what is already stored
├── BodyTooLarge       413
├── RequestInvalid     422  well-formed, and not acceptable
└── CursorInvalid      422
```

A room derives its own leaves from these where the status is the one that it wants.
"""

from __future__ import annotations

from typing import ClassVar

from postroad.errors import Kind, PostroadError

__all__ = [
    "BodyTooLarge",
    "Conflict",
    "CursorInvalid",
    "Forbidden",
    "RequestInvalid",
    "ResourceMissing",
    "TokenMissing",
    "WebError",
]


class WebError(PostroadError):
    """A request cannot be served; the status says whose turn it is."""

    code = "web"
    kind: ClassVar[Kind] = "usage"
    status: ClassVar[int] = 400


class TokenMissing(WebError):
    """The request carries no token, or one that nobody has."""

    code = "web_token_missing"
    kind = "refused"
    status = 401


class Forbidden(WebError):
    """The caller is known and may not do this."""

    code = "web_forbidden"
    kind = "refused"
    status = 403


class ResourceMissing(WebError):
    """There is nothing under this address."""

    code = "web_resource_missing"
    kind = "not_found"
    status = 404


class Conflict(WebError):
    """The request contradicts what is already stored; nothing was changed."""

    code = "web_conflict"
    kind = "refused"
    status = 409


class BodyTooLarge(WebError):
    """The body is larger than the server accepts."""

    code = "web_body_too_large"
    kind = "refused"
    status = 413


class RequestInvalid(WebError):
    """The request can be read and cannot be accepted."""

    code = "web_request_invalid"
    status = 422


class CursorInvalid(RequestInvalid):
    """The cursor was not given out by this list."""

    code = "web_cursor_invalid"
