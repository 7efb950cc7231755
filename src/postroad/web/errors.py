"""Errors of requests that every HTTP service shares.

```
WebError
├── HostInvalid        400  not exactly one well-formed header Host
├── PathInvalid        400
├── TokenMissing       401  no token, or an unknown one
├── Forbidden          403  known, and not allowed to
├── OriginNotAllowed   403  sent by a page of another site
├── ResourceMissing    404
├── BodyTooSlow        408  the client stopped sending the body, or sends it too slowly
├── Conflict           409  contradicts what is already stored
├── BodyTooLarge       413
├── MediaTypeRefused   415
├── HostNotAllowed     421  the header Host is not a name of this server
├── RequestInvalid     422  well-formed, and not acceptable
├── CursorInvalid      422
└── ComponentUnavailable 503  its service does not run at the moment
```

A component derives its own errors from these where the status fits.
"""

from __future__ import annotations

from typing import ClassVar

from postroad.errors import Kind, PostroadError

__all__ = [
    "BodyTooLarge",
    "BodyTooSlow",
    "ComponentUnavailable",
    "Conflict",
    "CursorInvalid",
    "Forbidden",
    "HostInvalid",
    "HostNotAllowed",
    "MediaTypeRefused",
    "OriginNotAllowed",
    "PathInvalid",
    "RequestInvalid",
    "ResourceMissing",
    "TokenMissing",
    "WebError",
]


class WebError(PostroadError, code="web"):
    """A request cannot be served; the status says whose turn it is."""

    kind: ClassVar[Kind] = "usage"
    status: ClassVar[int] = 400


class HostInvalid(WebError):
    """The request has no header Host, several, or one that cannot be parsed."""


class PathInvalid(WebError):
    """The path contains a character that no resource can have."""


class TokenMissing(WebError, kind="refused"):
    """The request carries no token, or an unknown one."""

    status = 401


class Forbidden(WebError, kind="refused"):
    """The caller is known and may not do this."""

    status = 403


class OriginNotAllowed(WebError, kind="refused"):
    """A page of another site sent the request."""

    status = 403


class HostNotAllowed(WebError, kind="refused"):
    """The header Host names a server that this one is not."""

    status = 421


class MediaTypeRefused(WebError):
    """The body has a media type that the server does not accept."""

    status = 415


class ResourceMissing(WebError, kind="not_found"):
    """There is nothing under this address."""

    status = 404


class Conflict(WebError, kind="refused"):
    """The request contradicts what is already stored; nothing was changed."""

    status = 409


class BodyTooSlow(WebError, kind="refused"):
    """The client stopped sending the body, or sends it too slowly."""

    status = 408


class BodyTooLarge(WebError, kind="refused"):
    """The body is larger than the server accepts."""

    status = 413


class RequestInvalid(WebError):
    """The request can be read and cannot be accepted."""

    status = 422


class CursorInvalid(RequestInvalid):
    """The cursor was not given out by this list."""


class ComponentUnavailable(WebError, kind="unavailable"):
    """The service that answers below this path does not run at the moment."""

    status = 503
