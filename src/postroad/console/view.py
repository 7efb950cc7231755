"""One open page: its session, its language, its refreshes and its actions."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

import psycopg
from nicegui import ui
from nicegui.events import GenericEventArguments
from psycopg_pool import PoolTimeout
from starlette.requests import Request

from postroad.backoff import CONNECTION_LOST
from postroad.bus import ConsumerStatus
from postroad.console.accounts import Role, Session
from postroad.console.catalogue import Texts, texts_of
from postroad.console.connections import Connections, Place
from postroad.console.context import Context
from postroad.console.errors import AddressInvalid
from postroad.console.gate import current_session, session_of
from postroad.console.markup import Markup, joined, moment
from postroad.errors import PostroadError
from postroad.operate import Resource, Row
from postroad.postgres.errors import DatabaseUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Errors of an unreachable database; the page stays open and shows them.
AWAY = (*CONNECTION_LOST, PoolTimeout, OSError, TimeoutError, DatabaseUnavailable)


GOOD, BAD = "positive", "negative"
# Keys of rows are 64-bit numbers; the margin allows for arithmetic on them.
MAX_PLACE = 2**62
# Parameters that select a page of a list; for a second list its name precedes `after`.
CURSORS = re.compile("before|start|place|[a-z_]*after")


class PageEnds(Exception):
    """Ends a page whose object does not exist; the page already shows this."""


def replace_content(shown: ui.html, content: Markup) -> None:
    """Let the browser update an element in place."""
    ui.run_javascript(f"postroadLive({json.dumps(shown.html_id)}, {json.dumps(content)})")


class View:
    """A page that is open in one browser."""

    def __init__(self, context: Context, request: Request) -> None:
        self.context = context
        self.request = request
        self.session: Session = session_of(request.scope)
        self.t: Texts = texts_of(request)
        self.theme = request.cookies.get("postroad_theme", "auto")
        self._refreshers: list[Callable[[], Awaitable[None]]] = []
        self._row_actions: dict[str, Callable[[str], Awaitable[None]]] = {}
        self._banner: ui.label | None = None
        self.open_dialogs = 0
        self._as_of: datetime | None = None

    @property
    def supplied(self) -> dict[str, Any]:
        """The arguments that the console adds to actions: the account, the vault, no dry run."""
        by = f"{self.session.account} (console)"
        return {"by": by, "vault": self.context.components.vault, "is_dry_run": False}

    def path(self, name: str) -> str:
        """Return a part of the URL's path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        """Return a parameter of the URL; empty if it is missing."""
        return self.request.query_params.get(name, "").strip()

    def here(self, **changed: object) -> str:
        """Return the URL of this page with other parameters, at the first page of a list."""
        kept = self.request.query_params.items()
        left = {**{name: value for name, value in kept if not CURSORS.fullmatch(name)}, **changed}
        given = {name: value for name, value in left.items() if value not in (None, "")}
        return self.request.url.path + (f"?{urlencode(given)}" if given else "")

    def number(self, name: str) -> int:
        """Return a part of the path that is a number. Raises AddressInvalid."""
        text = self.path(name)
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or abs(int(text)) > MAX_PLACE:
            raise AddressInvalid(f"{name} must be a number, not {text[:40]!r}")
        return int(text)

    async def cached(self, key: object, load: Callable[[], Awaitable[T]], age: float = 2.0) -> T:
        """Return a value that all open pages share; the page shows the age of its oldest value."""
        value = await self.context.cache.get(key, load, age)
        if (loaded_at := self.context.cache.loaded_at(key)) is not None:
            self._as_of = min(self._as_of or loaded_at, loaded_at)
        return value

    async def load(
        self,
        key: object,
        function: Callable[..., Awaitable[T]],
        *arguments: object,
        age: float = 2.0,
        **named: object,
    ) -> T:
        """Return what a component's function reads from the database, as `cached` does."""
        run = self.context.connections.run
        return await self.cached(key, lambda: run(function, *arguments, **named), age)

    def place_of(self, resource: Resource) -> Connections:
        """Return the connections to a resource's database, or the value that it is read from."""
        is_of_page = resource.name == "alerts.incidents"
        return Place(self) if is_of_page else self.context.place_of(resource)

    async def rows(
        self,
        resource: Resource,
        filters: Mapping[str, str] | None = None,
        *,
        age: float = 2.0,
        **page: Any,
    ) -> Sequence[Row]:
        """Return rows of a resource, shared by all pages; see `Context.reading`."""
        return await self.cached(*self.context.reading(resource, filters, **page), age)

    async def status(self) -> Sequence[ConsumerStatus]:
        """Return the figures of all consumers, shared by all pages."""
        return await self.cached("bus.status", self.context.bus.status)

    async def live(self, render: Callable[[], Awaitable[Markup]], *, class_: str = "") -> None:
        """Show the result of `render`, and update it in place with every refresh.

        The browser changes only the differences (console.js), so that focus, selection and scroll
        positions are kept.
        """
        first = await self.watch(render, lambda content: replace_content(shown, content))
        shown = ui.html(first, sanitize=False).classes(class_)

    async def watch(self, read: Callable[[], Awaitable[T]], change: Callable[[T], object]) -> T:
        """Return the result of `read`, and call `change` when a refresh reads a different one."""
        last = first = await read()

        async def again() -> None:
            nonlocal last
            if (found := await read()) != last:
                last = found
                change(found)

        self.on_refresh(again)
        return first

    def on_refresh(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Call a function with every refresh."""
        self._refreshers.append(refresh)

    def on_row(self, verb: str, do: Callable[[str], Awaitable[None]]) -> None:
        """Let `row_button`s of this verb call a function with the key of their row.

        The key comes from the browser and may be anything; `act` decides what is allowed.
        """
        if not self._row_actions:
            ui.on("row-action", self._row_action)
        self._row_actions[verb] = do

    async def _row_action(self, event: GenericEventArguments) -> None:
        given = event.args if isinstance(event.args, dict) else {}
        do = self._row_actions.get(str(given.get("verb")))
        if do is not None:
            await do(str(given.get("key")))

    def start_refreshing(self, banner: ui.label, as_of: ui.html) -> None:
        """Refresh while connected; `banner` reports a lost database, `as_of` the values' age."""
        self._banner = banner

        async def show_age() -> None:
            if self._as_of is not None:
                text = joined((self.t("common.as_of"), " ", moment(self._as_of)))
                replace_content(as_of, text)
            self._as_of = None

        self.on_refresh(show_age)
        ui.timer(self.context.settings.refresh.total_seconds(), self.refresh, immediate=False)

    async def refresh(self) -> None:
        """Refresh the contents of the page; if the session has ended, open the login page."""
        try:
            known = self.session.token, self.session.address
            if await current_session(self.context.accounts, self.context.cache, *known) is None:
                if self.open_dialogs:
                    # Leaving the page would discard the input; it can be copied from the dialog.
                    self._show_banner("error.ended")
                else:
                    ui.navigate.to("/login")
                return
            for refresh in self._refreshers:
                await refresh()
        except AWAY as failure:
            logger.info("console_refresh_failed", extra={"reason": str(failure).strip()})
            self._show_banner("error.away")
        except PostroadError as failure:
            logger.info("console_refresh_failed", extra={"reason": str(failure)})
        else:
            self._show_banner(None)

    def _show_banner(self, text: str | None) -> None:
        if self._banner is not None:
            if text is not None:
                self._banner.set_text(self.t(text))
            self._banner.set_visibility(text is not None)

    def may(self, role: Role) -> bool:
        """Return whether to offer an action; permission is checked when it is run."""
        return self.session.may(role)

    async def act(
        self,
        action: str,
        target: str,
        do: Callable[[], Awaitable[T]],
        *,
        role: Role = "operator",
        detail: Mapping[str, Any] | None = None,
        describe: Callable[[T], tuple[str, str]] | None = None,
    ) -> bool:
        """Run an operation as the signed-in account; record it in the audit log before and after.

        The session and its role are read again from the database. Errors are shown and not raised.
        `describe` converts the result to a notice and its tone. Returns whether it succeeded; all
        pages then read fresh values.
        """
        accounts = self.context.accounts
        try:
            session = await accounts.session(self.session.token, self.session.address)
            if session is None or not session.may(role):
                await accounts.begin_audit(
                    session or self.session, action, target, detail, outcome="refused"
                )
                self.notify(self.t("error.ended" if session is None else "error.not_allowed"), BAD)
                return False
            result = await accounts.audited(session, action, target, do, detail)
        except (PostroadError, psycopg.Error, *AWAY) as failure:
            self.notify(self.explain(failure), BAD)
            return False
        self.notify(*(describe(result) if describe else (self.t("common.done"), GOOD)))
        self.context.cache.expire()
        await self.refresh()
        return True

    def explain(self, failure: Exception) -> str:
        """Describe an error in the user's language; details are in its original text."""
        if isinstance(failure, AWAY):
            return self.t("error.away")
        if isinstance(failure, psycopg.Error):
            text, kind = str(failure.diag.message_primary or failure), "error"
        else:
            text = "; ".join(filter(None, (str(failure), getattr(failure, "hint", None))))
            kind = getattr(failure, "kind", "usage")
        known = f"problem.{getattr(failure, 'code', '')}"
        return self.t(known if known in self.t.entries else f"problem.kind_{kind}", text=text)

    async def offer(
        self, button: ui.button | None, is_offered: Callable[[], Awaitable[bool]]
    ) -> None:
        """Show a button only while its action is possible; checked with every refresh."""
        if button is None:
            return

        async def again() -> None:
            button.set_visibility(await is_offered())

        await again()
        self.on_refresh(again)

    def notify(self, text: str, tone: str = "info") -> None:
        """Show a temporary notice."""
        ui.notify(text, type=tone, position="top", close_button=True)  # type: ignore[arg-type]
