"""The console over a thousand queues and a million messages: its first picture, its cost."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.lab import Lab, open_server
from benchmarks.result import Figure, Findings, Scenario, at_most
from postroad.bus import Bus
from postroad.cli.components import SCHEMAS
from postroad.console.accounts import Accounts
from postroad.postgres import install
from postroad.postgres.connections import open_async_pool

QUEUES = 1_000
MESSAGES_EACH = 1_000
CONSOLES = 10
ROUNDS = 5
WATCH_SECONDS = 60
PASSWORD = "a password of benchmarks"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
# What the console asks for; maintenance and the look itself are not its.
COST = (
    "select coalesce(sum(total_exec_time + total_plan_time), 0) from pg_stat_statements s"
    " join pg_database d on d.oid = s.dbid and d.datname = current_database()"
    " where query !~ 'mbus\\.maintain|pg_stat_statements'"
)

DEAREST = (
    "select round((total_exec_time + total_plan_time)::numeric) as ms, calls, left(query, 120)"
    " from pg_stat_statements order by 1 desc limit 5"
)


def run(lab: Lab) -> Findings:
    """Fill a server of its own, open the console, then leave ten of them open."""
    queues = lab.scaled(QUEUES, 20)
    each = lab.scaled(MESSAGES_EACH, 50)
    with open_server(
        shared_preload_libraries="pg_stat_statements", max_connections="100"
    ) as server:
        dsn = server.dsn()
        lab.report(f"{queues:,} queues with {each:,} messages each")
        _fill(dsn, queues, each)
        with _serving(dsn) as url, _browsing() as browser:
            lab.report("the first picture of the overview")
            first = [_first_picture(browser, url) for _ in range(ROUNDS)]
            seconds = lab.scaled(WATCH_SECONDS, 10)
            with psycopg.connect(dsn, autocommit=True) as connection:
                lab.report(f"no open console, {seconds} s")
                alone = _share(connection, seconds, time.sleep)
                lab.report(f"{CONSOLES} open consoles, {seconds} s")
                pages = [_sign_in(browser, url) for _ in range(CONSOLES)]
                share = _share(
                    connection, seconds, lambda wait: pages[0].wait_for_timeout(wait * 1000)
                )
                dearest = connection.execute(DEAREST).fetchall()
    median = statistics.median(first)
    return Findings(
        [
            Figure(
                f"overview of {queues:,} queues and {queues * each:,} messages: map drawn after",
                f"{median:.2f} s (worst of {ROUNDS}: {max(first):.2f} s)",
                "",
                median,
                " s",
                at_most(2),
            ),
            Figure(
                f"{CONSOLES} open consoles: part of a core in the database",
                f"{share:.2f} %, of which {alone:.2f} % even without them",
                "",
                share,
                " %",
                at_most(5),
            ),
        ],
        {
            "first_picture_seconds": first,
            "core_percent": share,
            "core_percent_without": alone,
            "dearest_statements": [[str(cell) for cell in row] for row in dearest],
        },
    )


def _fill(dsn: str, queues: int, each: int) -> None:
    with psycopg.connect(dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create extension if not exists pg_stat_statements")
    with Bus(dsn) as bus:
        for number in range(queues):
            name = f"many{number}"
            bus.create_queue(name, payload="text")
            bus.post_many(name, [f"message {index}" for index in range(each)])

    async def account() -> None:
        pool = await open_async_pool(dsn)
        try:
            await Accounts(pool).put("watcher", "viewer", PASSWORD)
        finally:
            await pool.close()

    asyncio.run(account())


@contextmanager
def _serving(dsn: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", "from postroad.cli import run; run()", "serve", "web", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "POSTROAD_DATABASE_URL": dsn, "POSTROAD_HTTP__PORT": "0"},
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def _browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        browser.close()


def _sign_in(browser: Browser, url: str) -> Page:
    page = browser.new_context().new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{url}/console/login")
    page.fill("#name", "watcher")
    page.fill("#password", PASSWORD)
    page.click("button[type=submit]")
    page.wait_for_selector(".map svg .node")
    return page


def _first_picture(browser: Browser, url: str) -> float:
    """Open the overview in a browser that has its scripts, and wait for the map."""
    page = _sign_in(browser, url)
    began = time.monotonic()
    page.goto(f"{url}/console/")
    page.wait_for_selector(".map svg .node")
    took = time.monotonic() - began
    page.context.close()
    return took


def _share(
    connection: psycopg.Connection[tuple[object, ...]],
    seconds: float,
    wait: Callable[[float], object],
) -> float:
    """Return the percentage of a core that the database spends on the console meanwhile."""
    connection.execute("select pg_stat_statements_reset()")
    began = time.monotonic()
    wait(seconds)
    return 100 * _cost(connection) / 1000 / (time.monotonic() - began)


def _cost(connection: psycopg.Connection[tuple[object, ...]]) -> float:
    row = connection.execute(COST).fetchone()
    return float(str(row[0])) if row else 0.0


SCENARIO = Scenario(
    "console",
    "The console",
    f"{QUEUES:,} queues with {MESSAGES_EACH:,} messages each; the real web service and Debian's "
    f"Chromium. First picture: from opening the overview until its map, median of {ROUNDS}. "
    f"Cost: execution and planning time by pg_stat_statements over {WATCH_SECONDS} s while "
    f"{CONSOLES} browsers show the overview, and over as long without any.",
    4,
    run,
)
