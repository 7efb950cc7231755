"""Pages in Russian have no words that were left in English."""

from __future__ import annotations

import json
import re
from html import unescape

import httpx
import pytest

from tests.console.stage import PAGES, Stage, look
from tests.fixtures.console import OpenPage, RunningConsole

# The first test of a process fills the pages.
pytestmark = pytest.mark.timeout(180)
# Names of data and of settings, which are the same in every language.
NAMES = re.compile(
    r"shop\w*|sh-\w*|dummy\w*|postroad\w*|[a-z]+_[a-z_]+|iid|[a-z]*id|ssh\w*|mbus|"
    r"bus|web|up|alerts|default|large|small|size|city|tver|number|tour|room|ticket|transfer|"
    r"home|lists|consumer|disk|intake|broker|heartbeat|upkeep|nobody|name|drawer|shelf|exchange|lock|sagas|admin|operator|viewer|console|reader|writer",
    re.IGNORECASE,
)
# Terms that Russian administrators write in Latin letters.
TERMS = {
    "http", "https", "sftp", "erp", "json", "jsonb", "hstore", "text", "bytea", "sha", "utc", "pid",
    "en", "ru", "id", "host", "url", "celery", "rabbitmq", "postgresql", "sql", "mermaid",
}  # fmt: skip


# Cells and lines whose text a component or a partner wrote, or with names that other tests chose.
WRITTEN = (
    "Ошибка", "Проблема", "Оповещение", "Что", "Примечание", "Данные", "Причина", "Текст",
    "Свойства", "Ключ", "Папка", "Учётная запись", "Служба", "Сервер", "База", "Отправитель",
    "Получатель",
)  # fmt: skip


def shown_text(html: str) -> str:
    """Return the text of a page, as NiceGUI sends it, without what others wrote."""
    values = re.findall(r'"(?:innerHTML|text|label)":\s*"((?:[^"\\]|\\.)*)"', html)
    shown = "\n".join(unescape(json.loads(f'"{one}"')) for one in values)
    names = "|".join(WRITTEN)
    for written in (
        rf'<td[^>]*data-label="(?:{names})"[^>]*>.*?</td>',
        rf"<dt>(?:{names})</dt><dd>.*?</dd>",
        r'<(div|p|span) class="(?:note|danger)[^"]*"[^>]*>.*?</\1>',
        r'<(ul|ol) class="timeline">.*?</\1>',
        r"<(code|pre|svg)[^>]*>.*?</\1>",
        r'<span class="mono"[^>]*>.*?</span>',
    ):
        shown = re.sub(written, " ", shown, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", shown)


def test_pages_in_russian_have_no_english_words(
    open_page: OpenPage, console: RunningConsole, stage: Stage
) -> None:
    cookies = {one["name"]: one["value"] for one in open_page("/").context.cookies()}
    # Names that other tests of this process chose.
    tables = "mbus.queue", "mbus.consumer", "bridge.bridge", "intake.sftp_servers"
    queries = [*(f"select name from {table}" for table in tables), "select id from exchange.client"]
    chosen = {name for query in queries for (name,) in look(console, query)}
    # Alerts are shown as they were raised, and other tests raise some.
    recorded = "select concat_ws(' ', title, body) from alerts.alert"
    for (text,) in look(console, recorded):
        chosen |= {word.lower() for word in re.findall(r"[A-Za-z]+", text or "")}
    found: dict[str, set[str]] = {}
    with httpx.Client(base_url=console.url, cookies=cookies, timeout=60) as client:
        for pages in PAGES:
            for name in PAGES[pages]:
                if name in ("settings", "audit"):
                    # Names of settings and of actions.
                    continue
                path = f"/console{stage.path(pages, name)}"
                answer = client.get(path, headers={"accept-language": "ru"})
                text = shown_text(answer.text)
                assert re.search("[\u0400-\u04ff]{4}", text), name
                for word in set(re.findall(r"(?<![\w./@-])[A-Za-z][A-Za-z]+(?![\w./@-])", text)):
                    if word.lower() not in TERMS | chosen and not NAMES.fullmatch(word):
                        found.setdefault(word, set()).add(name)
    assert not found, "\n".join(f"{word}: {sorted(found[word])}" for word in sorted(found))
