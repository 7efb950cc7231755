"""Checks the origin of a request before any application of the server handles it.

| check | refused with | protects against |
|---|---|---|
| exactly one well-formed `Host` | 400 | proxies and applications that read different ones |
| `Host` is an address or a name of this server | 421 | DNS rebinding |
| `Origin` of a state-changing request or websocket is this server | 403 | cross-site requests |
| `Content-Type` of a `POST` is not one that a form can send | 415 | the same, from old browsers |
| no NUL in the path | 400 | values that PostgreSQL cannot store |

Clients that are not browsers send no `Origin` and pass that check.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from postroad.web.errors import (
    HostInvalid,
    HostNotAllowed,
    MediaTypeRefused,
    OriginNotAllowed,
    PathInvalid,
    WebError,
)
from postroad.web.problems import problem_of, problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
# A page of any site can send these without a preflight request.
FORM_TYPES = {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}
ANY_HOST = "*"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


class OriginCheck:
    """ASGI middleware around everything that a server serves.

    Addresses, `localhost`, `host`, the machine's own name, the host of `public_url` and
    `allowed_hosts` are names of this server. Forms are accepted only below `form_paths`, by an
    application that checks them itself.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        public_url: str | None = None,
        allowed_hosts: Sequence[str] = (),
        form_paths: tuple[str, ...] = (),
    ) -> None:
        self.app = app
        self._form_paths = form_paths
        public = urlsplit(public_url or "")
        self._public_origin = f"{public.scheme}://{public.netloc}".lower() if public_url else None
        names = (host, "localhost", socket.gethostname(), public.hostname or "", *allowed_hosts)
        self._names = {name.lower() for name in names if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope)
            except WebError as refused:
                await _refuse(refused, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if "\0" in scope["path"]:
            raise PathInvalid("the path contains a NUL character")
        hosts = _values(scope, b"host")
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            raise HostInvalid("a request has exactly one header Host, with a name and a port")
        if not self._is_name_of_server(found[1].lower()):
            raise HostNotAllowed(
                f"{found[1][:100]} is not a name of this server",
                hint="add the name to the setting http.allowed_hosts, or set http.public_url",
            )
        is_websocket = scope["type"] == "websocket"
        if not is_websocket and scope["method"] in SAFE_METHODS:
            return
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        own = {f"{scheme}://{hosts[0]}".lower(), self._public_origin}
        if any(origin.lower() not in own for origin in _values(scope, b"origin")):
            raise OriginNotAllowed("the request comes from a page of another site")
        if not is_websocket and scope["method"] == "POST":
            self._check_media_type(scope)

    def _is_name_of_server(self, name: str) -> bool:
        if ANY_HOST in self._names or name in self._names:
            return True
        try:
            # A name server cannot redirect an IP address.
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def _check_media_type(self, scope: Scope) -> None:
        if scope["path"].startswith(self._form_paths):
            return
        given = _values(scope, b"content-type")
        media_type = given[0].partition(";")[0].strip().lower() if given else ""
        length = _values(scope, b"content-length")
        has_body = bool(_values(scope, b"transfer-encoding")) or (bool(length) and length != ["0"])
        # A page can send a body without a type, but with an Origin; programs send none.
        is_untyped = has_body and not media_type and bool(_values(scope, b"origin"))
        if media_type in FORM_TYPES or is_untyped:
            raise MediaTypeRefused(
                f"a body of type {media_type[:100] or 'unknown'} is not accepted",
                hint="send the header Content-Type: application/json",
            )


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for given, value in scope["headers"] if given == name]


async def _refuse(refused: WebError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        # Closed before it was accepted: the client gets 403.
        await receive()
        await send({"type": "websocket.close", "code": 4000 + refused.status})
        return
    await problem_response(problem_of(refused))(scope, receive, send)
