"""The gate before the console: nobody passes without a session, and no other site's page does.

Checked for every request and every websocket below the prefix, before any of NiceGUI is reached:

1. **Host**: the name that the browser used must be ours, else a foreign name could be pointed here.
2. **Origin**: whatever changes something, and every websocket, must come from our own pages.
3. **Session**: the cookie must belong to somebody who is signed in; only the login page is open.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg_pool import PoolTimeout
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroad.console.accounts import Accounts, Session
from postroad.console.looks import Looks

__all__ = ["COOKIE", "PREFIX", "Gate", "cookies_of", "session_of"]

PREFIX = "/console"
COOKIE = "postroad_session"
SESSION_AGE_SECONDS = 2.0
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_OPEN = (f"{PREFIX}/login", f"{PREFIX}/static/", f"{PREFIX}/oidc/", f"{PREFIX}/language/")
# NiceGUI compiles its components in the browser, hence the two concessions for scripts.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",
}


def session_of(scope: Scope) -> Session:
    """Return who is signed in; only behind the gate."""
    session = scope["state"]["session"]
    assert isinstance(session, Session)  # noqa: S101 - the gate has put it there
    return session


def cookies_of(scope: Scope) -> dict[str, str]:
    """Read the cookies of a request or websocket."""
    jar: SimpleCookie = SimpleCookie()
    for name, value in scope["headers"]:
        if name == b"cookie":
            try:
                jar.load(value.decode("latin-1"))
            except CookieError:
                continue
    return {name: morsel.value for name, morsel in jar.items()}


class Gate:
    """ASGI middleware around the whole application; paths outside the prefix pass untouched."""

    def __init__(
        self,
        app: ASGIApp,
        accounts: Accounts,
        looks: Looks,
        *,
        host: str,
        public_url: str | None = None,
    ) -> None:
        self.app = app
        self._accounts = accounts
        self._looks = looks
        self._public = urlsplit(public_url) if public_url else None
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let pass, send to the login page, or refuse."""
        path = scope.get("path", "")
        is_ours = path == PREFIX or path.startswith(f"{PREFIX}/")
        if scope["type"] not in ("http", "websocket") or not is_ours:
            await self.app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        if not self._is_our_host(headers.get("host", "")):
            reason = "this name is not the console's; http.public_url says how browsers reach it"
            await _refuse(scope, receive, send, 421, reason)
            return
        if not self._is_our_origin(scope, headers):
            await _refuse(scope, receive, send, 403, "this did not come from the console's pages")
            return
        try:
            session = await self._session(scope)
        except (psycopg.OperationalError, PoolTimeout):
            await _refuse(scope, receive, send, 503, "the database is away; try again")
            return
        scope.setdefault("state", {})["session"] = session
        if session is None and not path.startswith(_OPEN):
            await self._send_to_login(scope, receive, send)
            return
        await self.app(scope, receive, _guarded(scope, send))

    async def _session(self, scope: Scope) -> Session | None:
        token = cookies_of(scope).get(COOKIE)
        if not token:
            return None
        address = (scope.get("client") or ("", 0))[0]
        return await self._looks.get(
            ("session", token),
            lambda: self._accounts.session(token, address),
            SESSION_AGE_SECONDS,
        )

    def _is_our_host(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname or "").lower()
        if self._public is not None and name == self._public.hostname:
            return True
        if name in ("localhost", self._host):
            return True
        try:
            # An address cannot be pointed elsewhere by somebody's name server.
            ip_address(name)
        except ValueError:
            return False
        return True

    def _is_our_origin(self, scope: Scope, headers: dict[str, str]) -> bool:
        origin = headers.get("origin")
        is_safe = scope["type"] == "http" and scope.get("method") in SAFE_METHODS
        if origin is None:
            if is_safe:
                return True
            # Old browsers leave the origin out; no browser leaves both out.
            referer = urlsplit(headers.get("referer", ""))
            if scope["type"] == "websocket" or not referer.netloc:
                return False
            origin = f"{referer.scheme}://{referer.netloc}"
        scheme = {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"])
        allowed = {f"{scheme}://{headers.get('host', '')}".lower()}
        if self._public is not None:
            allowed.add(f"{self._public.scheme}://{self._public.netloc}".lower())
        return origin.lower() in allowed

    async def _send_to_login(self, scope: Scope, receive: Receive, send: Send) -> None:
        wants_page = (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
        )
        if not wants_page:
            await _refuse(scope, receive, send, 401, "sign in first")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = quote(scope["path"] + (f"?{query}" if query else ""))
        answer = RedirectResponse(f"{PREFIX}/login?next={wanted}", status_code=303)
        await answer(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        # Closed before it was accepted: the browser sees 403.
        await receive()
        await send({"type": "websocket.close", "code": 4000 + status, "reason": reason})
        return
    await PlainTextResponse(reason, status_code=status)(scope, receive, send)


def _guarded(scope: Scope, send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given: list[Any] = list(message.get("headers", []))
            present = {name.lower() for name, _ in given}
            given += [(name, value) for name, value in _HEADERS.items() if name not in present]
            if not scope["path"].startswith((f"{PREFIX}/_nicegui/", f"{PREFIX}/static/")):
                given.append((b"cache-control", b"no-store"))
            message = {**message, "headers": given}
        await send(message)

    return with_headers
