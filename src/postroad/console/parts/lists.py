"""Parts of lists: search field, tabs, links to pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from postroad.console.catalogue import Texts
from postroad.console.incidents import Incident
from postroad.console.markup import Markup, card, element, joined, link, number
from postroad.console.view import View

SEVERITY_TONES = {"info": "plain", "warning": "wait", "error": "bad", "critical": "bad"}


def search_field(t: Texts, value: str, hint: str) -> Markup:
    """Build the search of a filter form."""
    field = element("input", type="search", name="search", value=value, placeholder=hint)
    return element("label", t("common.search"), field)


def choice_field(name: str, title: str, options: Mapping[str, str], chosen: str) -> Markup:
    """Build a choice of a filter form: texts by value."""
    listed = [
        element("option", text, value=value, selected="selected" if value == chosen else None)
        for value, text in options.items()
    ]
    return element("label", title, element("select", listed, name=name))


def filter_form(
    t: Texts, action: str, fields: Iterable[Markup], hidden: Mapping[str, object]
) -> Markup:
    """Build the form above a list; it works without scripts."""
    kept = [
        element("input", type="hidden", name=name, value=value)
        for name, value in hidden.items()
        if value not in (None, "")
    ]
    send = element("button", t("common.show"), type="submit", class_="button plain")
    return element(
        "form", *fields, kept, send, method="get", action=action, class_="filter", role="search"
    )


def pager(t: Texts, first: str | None, following: str | None, note: str = "") -> Markup:
    """Link to the first and to the next page."""
    shown = [element("span", note, class_="note")] if note else []
    if first:
        shown.append(link(t("common.first_page"), first, class_="button plain"))
    if following:
        shown.append(link(t("common.next_page"), following, class_="button plain", rel="next"))
    return element("nav", shown, class_="pager", aria_label=t("common.pages"))


def tabs(t: Texts, entries: Iterable[tuple[str, str, bool, str | None]]) -> Markup:
    """Link to the parts of a list: title, URL, whether it is shown, count."""
    links = []
    for word, href, is_shown, count in entries:
        counted = element("span", count, class_="count") if count is not None else None
        current = "page" if is_shown else None
        links.append(link(joined((word, counted)), href, aria_current=current))
    return element("nav", links, class_="tabs", aria_label=t("common.parts"))


def timeline(t: Texts, steps: Iterable[tuple[str, object, str, str]], title: str = "") -> Markup:
    """Show the steps of a timeline: state, time, note and tone of each."""
    lines = []
    for state, at, note, tone in steps:
        noted = element("div", note, class_="note") if note else None
        lines.append(element("li", element("strong", state), " ", at, noted, class_=tone))
    return card(title or t("exchange.timeline"), element("ol", lines, class_="timeline"))


def figures(entries: Iterable[tuple[str, object, str]]) -> Markup:
    """Show a few large numbers: name, value, tone."""
    shown = []
    for name, value, tone in entries:
        parts = element("div", value, class_="value"), element("div", name, class_="name")
        shown.append(element("div", *parts, class_=f"figure {tone}".strip()))
    return element("div", shown, class_="figures")


def severity_badge(view: View, one: Incident) -> Markup:
    """Show the severity of an incident, or that it was acknowledged or muted."""
    if one.is_handled:
        state = "muted" if one.owner is None else "acked"
        return element("span", view.t.state(state), class_="badge plain")
    return element(
        "span", view.t.state(one.severity), class_=f"badge {SEVERITY_TONES[one.severity]}"
    )


def download_note(t: Texts, size: int | None, shown: int | None, href: str, name: str) -> Markup:
    """Show a size, the number of characters shown if it is truncated, and a download link."""
    cut = "" if shown is None else f" · {t('bus.cut', shown=number(shown))}"
    whole = link(t("bus.download"), href, download=name)
    return element("span", t.size(size), cut, " · ", whole, class_="note")


def empty(title: object, advice: object = None) -> Markup:
    """Show that a list is empty, and what to do next."""
    return joined((element("strong", title), advice))


def nothing_found(t: Texts, everything: str) -> Markup:
    """Show that nothing matches the filter, and link to the list without it."""
    reset = link(t("common.reset"), everything)
    return element("div", empty(t("common.nothing_found"), reset), class_="empty")


def gone(title: str, advice: object = None) -> Markup:
    """Show that the object of a page does not exist."""
    return card(None, element("div", empty(title, advice), class_="empty"))


def crumbs(*steps: tuple[str, str | None]) -> Markup:
    """Show the breadcrumbs of the page."""
    slash = element("span", "/", aria_hidden="true")
    parts = [(slash, link(text, href) if href else element("span", text)) for text, href in steps]
    return element("nav", parts[0][1], parts[1:], class_="crumbs", aria_label="breadcrumb")
