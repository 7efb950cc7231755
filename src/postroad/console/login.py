"""Login and logout as plain forms, which work without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from postroad import __version__
from postroad.console.accounts import Session
from postroad.console.catalogue import LANGUAGES, Texts, texts_of
from postroad.console.context import Context
from postroad.console.errors import LoginRefused, TooManyLogins
from postroad.console.gate import COOKIE, PREFIX, language_links, plain_page
from postroad.console.icons import icon
from postroad.console.markup import Markup, element, link

YEAR_SECONDS = 365 * 86_400


def login_router(context: Context) -> APIRouter:
    """Return the routes that need no session, and logout."""
    router = APIRouter(prefix=PREFIX, include_in_schema=False)

    @router.get("/login")
    async def form(request: Request, next: str = "") -> Response:
        if request.state.session is not None:
            return RedirectResponse(_inside(next), status_code=303)
        return login_page(context, texts_of(request), next)

    @router.post("/login")
    async def sign_in(
        request: Request,
        name: str = Form("", max_length=200),
        password: str = Form("", max_length=1000),
        next: str = Form(""),
    ) -> Response:
        t, settings = texts_of(request), context.settings
        address, refuse = address_of(request), partial(record_refusal, context, request, name)
        try:
            session = await context.accounts.sign_in(name, password, address, settings)
        except TooManyLogins:
            # Recorded once per address and window: a flood of attempts must not fill the audit log.
            window = settings.login_window.total_seconds()
            await context.cache.get(("too many logins", address), refuse, window)
            return login_page(context, t, next, t("login.too_many"), status=429)
        except LoginRefused:
            await refuse()
            return login_page(context, t, next, t("login.refused"), status=401)
        return await begin_session(context, request, session, _inside(next))

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        session: Session = request.state.session
        await context.accounts.begin_audit(session, "sign_out", "console", outcome="done")
        await context.accounts.close(session.token)
        context.cache.forget(("session", session.token))
        answer = RedirectResponse(f"{PREFIX}/login", status_code=303)
        answer.delete_cookie(COOKIE, path=PREFIX)
        return answer

    @router.get("/language/{language}")
    async def choose(request: Request, language: str) -> Response:
        answer = RedirectResponse(_back(request), status_code=303)
        if language in LANGUAGES:
            answer.set_cookie(
                "postroad_language", language, max_age=YEAR_SECONDS, path=PREFIX, samesite="lax"
            )
        return answer

    return router


def address_of(request: Request) -> str:
    """Return the client's address; behind a trusted proxy, the one that the proxy reports."""
    return request.client.host if request.client else ""


async def record_refusal(
    context: Context, request: Request, name: str, detail: Mapping[str, str] | None = None
) -> None:
    """Record in the audit log that a sign-in was refused."""
    shown = name.replace("\0", "")[:200] or "-"
    anonymous = Session(shown, "viewer", datetime.now(UTC), address=address_of(request))
    await context.accounts.begin_audit(anonymous, "sign_in", "console", detail, "refused")


async def begin_session(
    context: Context,
    request: Request,
    session: Session,
    target: str,
    detail: Mapping[str, str] | None = None,
) -> Response:
    """Record the sign-in and set the cookie; for HTTPS only, if the console is served over it."""
    await context.accounts.begin_audit(session, "sign_in", "console", detail, "done")
    answer = RedirectResponse(target, status_code=303)
    public_url = context.http.public_url or ""
    answer.set_cookie(
        COOKIE,
        session.token,
        max_age=round(context.settings.session_lifetime.total_seconds()),
        path=PREFIX,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https" or public_url.startswith("https:"),
    )
    return answer


def _inside(wanted: str) -> str:
    """Return a path of the console: the login page must not redirect to another site."""
    is_inside = wanted.startswith(f"{PREFIX}/") and wanted.isprintable() and "\\" not in wanted
    return wanted if is_inside else f"{PREFIX}/"


def _back(request: Request) -> str:
    try:
        referer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return f"{PREFIX}/"
    return _inside(referer.path + (f"?{referer.query}" if referer.query else ""))


def login_page(
    context: Context, t: Texts, wanted: str = "", error: str = "", status: int = 200
) -> HTMLResponse:
    """Return the login form, with the error of the last attempt."""
    oidc = (
        link(t("login.oidc"), f"{PREFIX}/oidc/begin", class_="button plain")
        if context.settings.oidc.issuer
        else None
    )

    def field(name: str, **more: str) -> tuple[Markup, Markup]:
        given = element("input", id=name, name=name, required="required", **more)
        return element("label", t(f"login.{name}"), for_=name), given

    return plain_page(
        t,
        element("div", icon("brand"), element("h1", "Postroad"), class_="login-brand"),
        element("p", error, class_="login-error", role="alert") if error else None,
        element(
            "form",
            field("name", autocomplete="username", autofocus="autofocus", autocapitalize="none"),
            field("password", type="password", autocomplete="current-password"),
            element("input", type="hidden", name="next", value=wanted),
            element("button", t("login.sign_in"), type="submit", class_="button"),
            method="post",
            action=f"{PREFIX}/login",
        ),
        oidc,
        element("p", t("login.forgotten"), class_="login-hint"),
        element("p", language_links(t, is_short=False), class_="languages"),
        title=f"{t('login.sign_in')} · Postroad",
        head=Markup(f'<script src="{PREFIX}/static/console.js?v={__version__}" defer></script>'),
        status=status,
    )
