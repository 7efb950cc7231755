"""The frame around every page: navigation, header, content area, phone layout and dark mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from nicegui import ui
from starlette.requests import Request
from starlette.responses import Response

from postroad import __version__
from postroad.console.accounts import Role
from postroad.console.context import Context
from postroad.console.errors import AddressInvalid
from postroad.console.gate import PREFIX, language_links, notice_page
from postroad.console.icons import icon
from postroad.console.markup import Markup, element, joined, link
from postroad.console.parts.lists import tabs
from postroad.console.view import AWAY, PageEnds, View
from postroad.errors import PostroadError

Build = Callable[[View], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation."""

    key: str
    path: str
    role: Role = "viewer"


# The HTTP status of a page by the kind of a component's error.
STATUSES = {"usage": 400, "refused": 403, "not_found": 404}
PLACES: tuple[Place, ...] = (
    Place("tour", "/tour"),
    Place("overview", "/"),
    Place("bus", "/bus"),
    Place("sagas", "/bus/sagas"),
    Place("exchange", "/exchange"),
    Place("coordination", "/coordination"),
    Place("intake", "/intake"),
    Place("bridges", "/bridges"),
    Place("alerts", "/alerts"),
    Place("workers", "/workers"),
    Place("settings", "/settings", "admin"),
    Place("accounts", "/accounts", "admin"),
    Place("audit", "/audit", "admin"),
)


# The tabs above the pages of a component: paths, with the keys of their titles.
TABS: tuple[Mapping[str, str], ...] = (
    {
        "/bus": "bus.queues",
        "/bus/dead": "bus.dead",
        "/bus/waiting": "bus.waiting",
        "/bus/schedules": "bus.schedules",
        "/bus/replays": "bus.replays",
        "/bus/sagas": "nav.sagas",
    },
    {
        "/exchange": "exchange.processes",
        "/exchange/messages": "exchange.messages",
        "/exchange/clients": "exchange.clients",
    },
    {
        "/intake": "intake.pipeline",
        "/intake/servers": "intake.servers",
        "/intake/files": "intake.files",
    },
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its URL, its navigation entry, the key of its title, and its tab."""

    path: str
    place: str
    title: str
    build: Build
    role: Role = "viewer"
    tab: str = ""


# The pages of the modules that are imported.
PAGES: list[Page] = []


def page(
    path: str, place: str, title: str, role: Role = "viewer", tab: str = ""
) -> Callable[[Build], Build]:
    """Declare the function that builds a page; `tab` is the path of its tab, by default its own."""

    def declare(build: Build) -> Build:
        PAGES.append(Page(path, place, title, build, role, tab or path))
        return build

    return declare


def add_page(context: Context, page: Page) -> None:
    """Register a page."""

    async def show(request: Request) -> Response | None:
        view = View(context, request)
        if not view.may(page.role):
            return notice_page(view.t, view.t("error.not_allowed"), 403)
        values = {name: str(value) for name, value in request.path_params.items()}
        if any("\0" in text for text in (*values.values(), *request.query_params.values())):
            return notice_page(view.t, view.t("error.address"), 400)
        with _frame(view, page.place, view.t(page.title, **values)):
            for entries in TABS:
                if page.tab in entries:
                    found = [
                        (view.t(key), PREFIX + at, at == page.tab, None)
                        for at, key in entries.items()
                    ]
                    ui.html(tabs(view.t, found), sanitize=False)
            try:
                with suppress(PageEnds):
                    await page.build(view)
            except AWAY:
                # The frame is still shown, so that other pages can be opened.
                away = element("p", view.t("error.room_away"), class_="danger", role="alert")
                ui.html(away, sanitize=False)
            except psycopg.DataError:
                # The URL was typed by hand or made by a program.
                return notice_page(view.t, view.t("error.address"), 400)
            except PostroadError as refused:
                if refused.kind not in STATUSES:
                    raise
                prefix = view.t("error.address") if isinstance(refused, AddressInvalid) else ""
                return notice_page(view.t, f"{prefix} {refused}".strip(), STATUSES[refused.kind])
        return None

    # FastAPI reads the annotations of the closure from here.
    show.__annotations__ = {"request": Request}
    ui.page(page.path, title="Postroad", response_timeout=20)(show)


def pages_above(view: View) -> list[tuple[str, str]]:
    """Return the titles and addresses of the lists above the page of a row."""
    titles = {path: key for entries in TABS for path, key in entries.items()}
    titles |= {place.path: f"nav.{place.key}" for place in PLACES}
    here = view.request.url.path
    return [
        (view.t(titles[path]), PREFIX + path)
        for path in sorted(titles)
        if here.startswith(f"{PREFIX}{path}/")
    ]


@contextmanager
def _frame(view: View, place: str, title: str) -> Iterator[None]:
    ui.page_title(f"{title} · Postroad")
    # Contains the version, so that browsers load the files again after an upgrade.
    ui.add_head_html(
        f'<link rel="stylesheet" href="{PREFIX}/static/console.css?v={__version__}">'
        f'<script src="{PREFIX}/static/console.js?v={__version__}" defer></script>'
    )
    ui.context.client.page.language = "ru" if view.t.language == "ru" else "en-US"
    ui.colors(primary="#0b7285", positive="#2b8a3e", negative="#c92a2a", accent="#5f3dc4")
    dark = {"dark": True, "light": False}.get(view.theme)
    ui.dark_mode(dark)
    ui.html(link(view.t("common.skip"), "#main", class_="skip"), sanitize=False)
    with ui.element("div").classes("shell"):
        ui.html(_navigation(view, place), sanitize=False, tag="header").classes("side")
        with ui.element("main").classes("main").props('id="main"'):
            banner = ui.label(view.t("error.away")).classes("banner").props('role="alert"')
            banner.set_visibility(False)
            with ui.element("div").classes("head"):
                ui.html(element("h1", title), sanitize=False).classes("title")
                as_of = ui.html("", sanitize=False).classes("as-of note")
            yield
            # The browser shows all times in its own zone, which it inserts here; see console.js.
            zone = element("span", data_zone=view.t("common.zone", zone="{zone}"))
            foot = element("p", f"Postroad {__version__} · ", zone)
            ui.html(foot, sanitize=False).classes("foot")
    view.start_refreshing(banner, as_of)


def _navigation(view: View, place: str) -> Markup:
    t = view.t
    entries = [
        element(
            "li",
            link(
                joined((icon(each.key), element("span", t(f"nav.{each.key}")))),
                PREFIX + each.path,
                aria_current="page" if each.key == place else None,
            ),
        )
        for each in PLACES
        if view.may(each.role) and (each.key != "tour" or view.context.crash is not None)
    ]
    languages = language_links(t, is_short=True)
    account = element(
        "form",
        element("span", view.session.account, class_="who"),
        element("span", t(f"role.{view.session.role}"), class_="role"),
        element("button", t("nav.sign_out"), type="submit"),
        method="post",
        action=f"{PREFIX}/logout",
        class_="account",
    )
    query = view.query("q") if place == "overview" else ""
    theme = _button("theme", t("nav.theme"), title=t("nav.theme"))
    brand = link(joined((icon("brand"), element("span", "Postroad"))), f"{PREFIX}/", class_="brand")
    menu = _button("menu", t("nav.menu"), aria_expanded="false", aria_controls="places")
    pages = element("nav", element("ul", entries), aria_label=t("nav.label"))
    search = element(
        "form",
        element(
            "input", name="q", type="search", id="find", aria_label=t("find.title"),
            placeholder=t("find.placeholder"), required="required", value=query,
        ),
        action=f"{PREFIX}/find",
        role="search",
    )  # fmt: skip
    tools = element("div", element("div", languages, class_="languages"), theme, class_="tools")
    top = element("div", brand, menu, class_="top")
    return joined(
        (top, element("div", search, pages, tools, account, class_="places", id="places"))
    )


def _button(name: str, label: str, **more: str) -> Markup:
    return element(
        "button", icon(name), type="button", class_=name, id=name, aria_label=label, **more
    )
