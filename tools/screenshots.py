"""Writes the screenshots of the documentation: a real `postroad up` with its sample partners.

python -m tools.screenshots [seconds to let things move]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOVING_SECONDS = 60
WIDTH, HEIGHT, PHONE = 1360, 900, 390
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]

PAGES = {
    "overview": "/",
    "tour": "/tour",
    "bus": "/bus",
    "queue": "/bus/queues/sample_orders",
    "messages": "/bus/queues/sample_orders/messages?state=dead",
    "dead": "/bus/dead",
    "waiting": "/bus/waiting",
    "sagas": "/bus/sagas",
    "exchange": "/exchange",
    "exchange-messages": "/exchange/messages",
    "coordination": "/coordination",
    "intake": "/intake",
    "intake-servers": "/intake/servers",
    "intake-files": "/intake/files",
    "bridges": "/bridges",
    "alerts": "/alerts",
    "workers": "/workers",
    "settings": "/settings",
    "accounts": "/accounts",
    "audit": "/audit",
}
# Pages that are reached from a row of another one.
FOLLOWED = {
    "message": "messages",
    "saga": "sagas",
    "process": "exchange",
    "event": "coordination",
    "file": "intake-files",
    "server": "intake-servers",
    "exchange-message": "exchange-messages",
}
ROWS = {
    "process": 'a[href*="/processes/"]',
    "event": 'a[href*="/events/"]',
    "saga": 'a[href*="/bus/sagas/"]',
}


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else MOVING_SECONDS
    IMAGES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="postroad-images-"))
    folder.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", "from postroad.cli import run; run()",
         "--data-folder", str(folder), "up", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        told = _addresses(process)
        print(f"moving for {seconds:.0f} s at {told['console']}")
        _capture(told["console"].removesuffix("/console"), told["password"], seconds)
    finally:
        process.terminate()
        process.wait(timeout=120)
        shutil.rmtree(folder, ignore_errors=True)


def _addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        if "Ctrl-C stops everything" in line:
            return found
        if parts := re.match(r"^(\S.*?)\s{2,}(\S.*?)\s*$", line):
            found[parts[1]] = parts[2]
    raise SystemExit("`postroad up` ended before everything ran")


def _capture(url: str, password: str, seconds: float) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        page = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, locale="en", color_scheme="light"
        ).new_page()
        page.set_default_timeout(60_000)
        page.goto(f"{url}/console/login")
        page.screenshot(path=IMAGES / "console-login.png")
        page.fill("#name", "admin")
        page.fill("#password", password)
        page.click("button[type=submit]")
        page.wait_for_timeout(seconds * 1000)
        for name, path in PAGES.items():
            _shoot(page, f"{url}/console{path}", name)
        for name, start in FOLLOWED.items():
            page.goto(f"{url}/console{PAGES[start]}")
            row = page.locator(f"tbody {ROWS.get(name, 'a')}").first
            _shoot(page, url + str(row.get_attribute("href")), name)
        page.set_viewport_size({"width": PHONE, "height": 844})
        for name in ("overview", "bus"):
            _shoot(page, f"{url}/console{PAGES[name]}", f"{name}-phone")
        browser.close()


def _shoot(page: Page, address: str, name: str) -> None:
    page.goto(address)
    page.wait_for_selector(".title h1")
    page.wait_for_timeout(3_000)
    whole = name == "overview"
    page.screenshot(path=IMAGES / f"console-{name}.png", full_page=whole)
    print(f"console-{name}.png")


if __name__ == "__main__":
    main()
