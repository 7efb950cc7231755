"""Checks the session of every request and websocket below the console's prefix.

`OriginCheck` has already refused foreign hosts and origins. In addition, state-changing
requests and websockets must have an `Origin` here, as browsers send it, and the session
cookie must be valid, except for the login page and its resources.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from psycopg_pool import PoolTimeout
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroad import __version__
from postroad.backoff import CONNECTION_LOST
from postroad.console.accounts import Accounts, Session
from postroad.console.cache import Cache
from postroad.console.catalogue import LANGUAGES, Texts, texts_of
from postroad.console.markup import Markup, element, link

PREFIX = "/console"
COOKIE = "postroad_session"
SESSION_AGE_SECONDS = 2.0
SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_LOGIN = f"{PREFIX}/login"
_OPEN = (f"{PREFIX}/static/", f"{PREFIX}/oidc/", f"{PREFIX}/language/")
# NiceGUI starts a page from an inline script and compiles templates in the browser.
_PAGE_SCRIPTS = "script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
_POLICY = (
    "default-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}


def session_of(scope: Scope) -> Session:
    """Return the session that the gate found."""
    session: Session = scope["state"]["session"]
    return session


async def current_session(
    accounts: Accounts, cache: Cache, token: str, address: str
) -> Session | None:
    """Return the session of a token, at most two seconds old; None if it has ended."""
    load = partial(accounts.session, token, address)
    return await cache.get(("session", token), load, SESSION_AGE_SECONDS, is_strict=True)


class Gate:
    """ASGI middleware around the whole application; paths outside the prefix pass unchecked."""

    def __init__(self, app: ASGIApp, accounts: Accounts, cache: Cache) -> None:
        self.app = app
        self._accounts = accounts
        self._cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, redirect to the login page, or refuse."""
        path = scope.get("path", "")
        is_ours = path == PREFIX or path.startswith(f"{PREFIX}/")
        if scope["type"] not in ("http", "websocket") or not is_ours:
            await self.app(scope, receive, send)
            return
        is_safe = scope["type"] == "http" and scope["method"] in SAFE_METHODS
        if not is_safe and not any(name == b"origin" for name, _ in scope["headers"]):
            await _refuse(scope, receive, send, 403, "the request has no Origin header")
            return
        try:
            session = await self._session(scope)
        except (*CONNECTION_LOST, PoolTimeout):
            await _refuse_away(scope, receive, send)
            return
        scope.setdefault("state", {})["session"] = session
        if session is None and path != _LOGIN and not path.startswith(_OPEN):
            await self._send_to_login(scope, receive, send)
            return
        await self.app(scope, receive, _guarded(scope, send))

    async def _session(self, scope: Scope) -> Session | None:
        token = HTTPConnection(scope).cookies.get(COOKIE)
        if not token:
            return None
        address = (scope.get("client") or ("", 0))[0]
        return await current_session(self._accounts, self._cache, token, address)

    async def _send_to_login(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not wants_page(scope):
            await _refuse(scope, receive, send, 401, "sign in first")
            return
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = quote(scope["path"] + (f"?{query}" if query else ""))
        answer = RedirectResponse(f"{PREFIX}/login?next={wanted}", status_code=303)
        await answer(scope, receive, send)


def wants_page(scope: Scope) -> bool:
    """Check whether a browser requests a page, and not a script data."""
    is_get = scope["type"] == "http" and scope["method"] == "GET"
    return is_get and "text/html" in HTTPConnection(scope).headers.get("accept", "")


def language_links(t: Texts, *, is_short: bool) -> list[Markup]:
    """Link to the languages of the console, by their names or codes."""
    return [
        link(
            code.upper() if is_short else name,
            f"{PREFIX}/language/{code}",
            lang=code,
            title=name,
            aria_label=name,
            aria_current="true" if code == t.language else None,
        )
        for code, name in LANGUAGES.items()
    ]


def plain_page(
    t: Texts, *body: object, title: str = "Postroad", head: object = None, status: int = 200
) -> HTMLResponse:
    """Build a page without NiceGUI, in the layout of the login page."""
    files = f"{PREFIX}/static"
    page = element(
        "html",
        element(
            "head",
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
            element("title", title),
            Markup(f'<link rel="icon" href="{files}/favicon.svg">'),
            Markup(f'<link rel="stylesheet" href="{files}/console.css?v={__version__}">'),
            head,
        ),
        element("body", element("main", *body, class_="login")),
        lang=t.language,
    )
    return HTMLResponse(Markup("<!doctype html>") + page, status_code=status)


def notice_page(t: Texts, reason: str, status: int, *, is_reloaded: bool = False) -> Response:
    """Build a page that gives a reason and links to the overview."""
    return plain_page(
        t,
        element("h1", "Postroad"),
        element("p", reason, class_="login-error", role="alert"),
        element("p", link(t("nav.overview"), f"{PREFIX}/", class_="button plain")),
        head=Markup('<meta http-equiv="refresh" content="3">') if is_reloaded else None,
        status=status,
    )


async def _refuse_away(scope: Scope, receive: Receive, send: Send) -> None:
    if not wants_page(scope):
        await _refuse(scope, receive, send, 503, "the database is not available; try again")
        return
    t = texts_of(Request(scope))
    answer = notice_page(t, t("error.away_page"), 503, is_reloaded=True)
    await answer(scope, receive, _guarded(scope, send))


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        # Closed before it was accepted: the browser gets 403.
        await receive()
        await send({"type": "websocket.close", "code": 4000 + status, "reason": reason})
        return
    await PlainTextResponse(reason, status_code=status)(scope, receive, send)


def _guarded(scope: Scope, send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            policy = _POLICY if scope["path"] == _LOGIN else _PAGE_SCRIPTS + _POLICY
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in {**_HEADERS, "content-security-policy": policy}.items():
                headers.setdefault(name, value)
            if not scope["path"].startswith((f"{PREFIX}/_nicegui/", f"{PREFIX}/static/")):
                headers.append("cache-control", "no-store")
            message = {**message, "headers": headers.raw}
        await send(message)

    return with_headers
