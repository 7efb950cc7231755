"""Errors of requests that every HTTP service shares.

```
WebError
├── HostInvalid        400  not exactly one well-formed header Host
├── PathInvalid        400
├── TokenMissing       401  no token, or an unknown one
├── Forbidden          403  known, and not allowed to
├── OriginNotAllowed   403  sent by a page of another site
├── ResourceMissing    404
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


class WebError(PostroadError):
    """A request cannot be served; the status says whose turn it is."""

    code = "web"
    kind: ClassVar[Kind] = "usage"
    status: ClassVar[int] = 400


class HostInvalid(WebError):
    """The request has no header Host, several, or one that cannot be parsed."""

    code = "web_host_invalid"


class PathInvalid(WebError):
    """The path contains a character that no resource can have."""

    code = "web_path_invalid"


class TokenMissing(WebError):
    """The request carries no token, or an unknown one."""

    code = "web_token_missing"
    kind = "refused"
    status = 401


class Forbidden(WebError):
    """The caller is known and may not do this."""

    code = "web_forbidden"
    kind = "refused"
    status = 403


class OriginNotAllowed(WebError):
    """A page of another site sent the request."""

    code = "web_origin_not_allowed"
    kind = "refused"
    status = 403


class HostNotAllowed(WebError):
    """The header Host names a server that this one is not."""

    code = "web_host_not_allowed"
    kind = "refused"
    status = 421


class MediaTypeRefused(WebError):
    """The body has a media type that the server does not accept."""

    code = "web_media_type_refused"
    status = 415


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


class ComponentUnavailable(WebError):
    """The service that answers below this path does not run at the moment."""

    code = "web_component_unavailable"
    kind = "unavailable"
    status = 503
