"""Errors of requests that every HTTP service shares.

A component derives its own errors from these if the status fits.
"""

from __future__ import annotations

from typing import ClassVar

from postroad.errors import PostroadError


class WebError(PostroadError, code="web", kind="usage"):
    """A request is rejected."""

    status: ClassVar[int] = 400


class HostInvalid(WebError):
    """The request has no header Host, several, or one that cannot be parsed."""


class PathInvalid(WebError):
    """The path contains an invalid character."""


class TokenMissing(WebError, kind="refused", status=401):
    """The request carries no token, or an unknown one."""


class OriginNotAllowed(WebError, kind="refused", status=403):
    """A page of another site sent the request."""


class HostNotAllowed(WebError, kind="refused", status=421):
    """The header Host is not a name of this server."""


class MediaTypeRefused(WebError, status=415):
    """The body has a media type that the server does not accept."""


class ResourceMissing(WebError, kind="not_found", status=404):
    """No resource has this address."""


class BodyTooSlow(WebError, kind="refused", status=408):
    """The client stopped sending the body, or sends it too slowly."""


class BodyTooLarge(WebError, kind="refused", status=413):
    """The body is larger than the server accepts."""


class RequestInvalid(WebError, status=422):
    """A parameter or the body is invalid."""


class CursorInvalid(RequestInvalid):
    """The cursor does not belong to this list."""


class ComponentUnavailable(WebError, kind="unavailable", status=503):
    """The service under this path is not running at the moment."""
