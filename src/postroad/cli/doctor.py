"""`postroad doctor`: reports what is installed, what is missing, and what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, LiteralString, TypeAlias
from urllib.parse import urlsplit

import click
import psycopg
from psycopg import Connection

from postroad import __version__
from postroad.bus.maintenance import MAINTENANCE_AGE
from postroad.cli.components import SCHEMAS
from postroad.cli.context import Application, command
from postroad.cli.output import print_records
from postroad.errors import PostroadError
from postroad.postgres import migrator
from postroad.postgres.binaries import find_binaries
from postroad.postgres.connections import connect
from postroad.postgres.server_user import SYSTEM_USER
from postroad.settings import masked_database_url

SPACE_LEAST_BYTES = 1_000_000_000
MAX_CLOCK_DIFFERENCE = timedelta(seconds=2)
MAX_MAINTENANCE_AGE = timedelta(seconds=15)
NEVER = timedelta(days=3650)
LOOPBACK = ("127.0.0.1", "::1", "localhost")
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))
ENVIRONMENT_FILE = Path("/etc/postroad/environment")
LOG_FOLDER = Path("/var/log/postroad")
LOGROTATE_FILE = Path("/etc/logrotate.d/postroad")


State: TypeAlias = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    state: State
    found: str
    advice: str = ""


def _finding(what: str, is_good: bool, found: str, advice: str, wrong: State = "bad") -> Finding:
    """Return a finding whose advice is given only if something is wrong."""
    return Finding(what, "good", found) if is_good else Finding(what, wrong, found, advice)


def _failed(what: str, failure: PostroadError, state: State = "bad") -> Finding:
    return Finding(what, state, str(failure), failure.hint or "")


@command()
def doctor(application: Application, as_json: bool) -> None:
    """Check everything that Postroad needs; exit code 1 if something is wrong.

    Example: postroad doctor --json
    """
    checks = _programs, _database, _keys, _brokers, _address, _supervisor, _channels
    findings = [finding for check in checks for finding in check(application)]
    print_records(findings, as_json=as_json, columns=("state", "what", "found", "advice"))
    if any(finding.state == "bad" for finding in findings):
        raise click.exceptions.Exit(1)


def _programs(application: Application) -> Iterator[Finding]:
    yield Finding("python", "good", platform.python_version())
    yield Finding("postroad", "good", __version__)
    yield Finding("psycopg", "good", importlib.metadata.version("psycopg"))
    try:
        binaries = find_binaries(application.settings.embedded.bin_folder)
        yield Finding("embedded PostgreSQL", "good", f"{binaries.version} in {binaries.folder}")
    except PostroadError as missing:
        state: State = "note" if application.named_database else "bad"
        yield _failed("embedded PostgreSQL", missing, state)
    psql = shutil.which("psql")
    advice = "only needed for manual access to the database"
    yield _finding("psql", bool(psql), psql or "not found", advice, "note")


def _database(application: Application) -> Iterator[Finding]:
    named = application.named_database
    # Also checked with a configured database: logs, keys and files are in this folder.
    folder = application.data_folder
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    yield _free("data folder", str(folder), shutil.disk_usage(there).free)
    try:
        if named is not None:
            yield Finding("database", "good", masked_database_url(named))
            yield from _schemas(named)
            return
        if os.geteuid() == 0:
            yield Finding("server's user", "note", f"root runs the server as {SYSTEM_USER}")
        server = application.embedded_server()
        if not server.is_running:
            yield Finding("database", "good", "embedded, not running", "start: postroad up")
            return
        with server:
            yield from _schemas(server.dsn())
    except PostroadError as failure:
        yield _failed("database", failure)


def _disk(connection: Connection[Any]) -> Iterator[Finding]:
    size, folder = connection.execute(
        "select pg_size_pretty(pg_database_size(current_database())),"
        " case when pg_has_role('pg_read_all_settings', 'usage')"
        " then current_setting('data_directory') end"
    ).fetchall()[0]
    try:
        is_near = connection.info.host.startswith("/") or connection.info.host in LOOPBACK
        free = shutil.disk_usage(folder).free if folder and is_near else None
    except OSError:
        free = None
    if free is None:
        found = f"{size}; its disk is on another machine"
        yield Finding("database's disk", "note", found, "monitor the disk on the database server")
        return
    yield _free("database's disk", f"{size} in {folder}", free)


def _free(what: str, where: str, free: int) -> Finding:
    found = f"{where}, {free / 1e9:.0f} GB free"
    return _finding(what, free >= SPACE_LEAST_BYTES, found, "free disk space")


def _clock(connection: Connection[Any]) -> Iterator[Finding]:
    before = datetime.now(UTC)
    ((there,),) = connection.execute("select clock_timestamp()").fetchall()
    apart = abs(there - before - (datetime.now(UTC) - before) / 2)
    found = f"{apart.total_seconds():.2f} s from the database's"
    advice = "synchronize both machines with the same time server (NTP)"
    yield _finding("clock", apart < MAX_CLOCK_DIFFERENCE, found, advice)


def _of_bus(connection: Connection[Any], query: LiteralString) -> Any:
    """Return the value of a query; None where the bus is not installed."""
    with suppress(psycopg.Error), connection.transaction():
        return connection.execute(query).fetchall()[0][0]
    return None


def _maintenance(connection: Connection[Any]) -> Iterator[Finding]:
    if (age := _of_bus(connection, MAINTENANCE_AGE)) is None:
        return
    found = "never" if age > NEVER else f"{max(age.total_seconds(), 0):.0f} s ago"
    advice = "run `postroad up`, or `postroad serve maintenance`"
    yield _finding("maintenance", age <= MAX_MAINTENANCE_AGE, found, advice, "note")


def _identity(connection: Connection[Any]) -> Iterator[Finding]:
    if _of_bus(connection, "select mbus.is_restored()"):
        found = "this database is a restored dump or a copy of another one"
        yield Finding("bus", "bad", found, "start maintenance, or: select mbus.after_restore()")


def _keys(application: Application) -> Iterator[Finding]:
    if importlib.util.find_spec("cryptography") is None:
        return
    settings = application.settings.vault
    path = settings.key_file or application.data_folder / "vault.key"
    if settings.keys is None and not path.exists():
        yield Finding("vault", "note", "no key yet", f"the first use creates {path}; back it up")
        return
    try:
        application.vault()
    except PostroadError as failure:
        yield _failed("vault", failure)
        return
    where = "in the settings" if settings.keys is not None else str(path)
    if settings.keys is None and path.stat().st_mode & 0o077:
        yield Finding("vault", "bad", f"{path} is readable by others", f"chmod 600 {path}")
        return
    yield Finding("vault", "good", f"key {where}")


def _channels(application: Application) -> Iterator[Finding]:
    channels = ", ".join(sorted(application.settings.alerts.channels))
    found = channels or "no channel: alerts, such as processes in doubt, are not sent"
    advice = "configure one in alerts.channels, and run `postroad up` or `postroad alerts serve`"
    yield _finding("alerts", bool(channels), found, advice, "note")


def _brokers(application: Application) -> Iterator[Finding]:
    """Check the connection to every RabbitMQ in the settings, and to each node of a cluster."""
    brokers = dict(application.settings.bridge.brokers)
    if application.settings.intake.broker is not None:
        brokers["intake"] = application.settings.intake.broker
    secrets = {name: url.get_secret_value() for name, url in brokers.items()}
    for name, url in ((name, url) for name, urls in secrets.items() for url in urls.split(";")):
        parts = urlsplit(url)
        if not parts.scheme.startswith("amqp"):
            continue
        default = 5671 if parts.scheme == "amqps" else 5672
        host, port = parts.hostname or "localhost", parts.port or default
        try:
            socket.create_connection((host, port), timeout=3).close()
        except OSError as failure:
            found = f"{host}:{port}: {failure.strerror or failure}"
            yield Finding(f"broker {name}", "bad", found, "start RabbitMQ there")
        else:
            yield Finding(f"broker {name}", "good", f"{host}:{port} answers")


def _address(application: Application) -> Iterator[Finding]:
    http = application.settings.http
    if http.host not in LOOPBACK and http.public_url is None and http.tls_cert is None:
        advice = "put a proxy with HTTPS in front of it and set http.public_url"
        yield Finding("console", "note", f"listens on {http.host} without TLS", advice)
    if http.public_url is not None and not http.trusted_proxies:
        found = "all logins seem to come from the proxy's address"
        advice = "so that failed logins are counted by client address"
        yield Finding("proxy", "note", found, f"add it to http.trusted_proxies, {advice}")


def _supervisor(application: Application) -> Iterator[Finding]:
    if "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in CONTAINER_FILES):
        folder = application.data_folder
        advice = "mount a volume there: keys and files are lost with the container"
        yield _finding("container", folder.is_mount(), f"data folder {folder}", advice, "note")
    # The folder is usually not readable by this user.
    with suppress(OSError):
        is_private = not ENVIRONMENT_FILE.stat().st_mode & 0o007
        advice = f"chmod o= {ENVIRONMENT_FILE}: it may hold the database's password"
        yield _finding("systemd", is_private, str(ENVIRONMENT_FILE), advice)
    # Written by supervisors that copy the error stream of services to files.
    with suppress(OSError):
        if any(LOG_FOLDER.glob("*.log")):
            is_there, advice = LOGROTATE_FILE.exists(), "install packaging/logrotate/postroad there"
            yield _finding("logrotate", is_there, str(LOGROTATE_FILE), advice, "note")


def _schemas(dsn: str) -> Iterator[Finding]:
    with connect(dsn) as connection:
        number = connection.info.server_version
        yield Finding("server", "good", f"PostgreSQL {number // 10000}.{number % 10000}")
        for check in (_disk, _clock, _maintenance, _identity):
            yield from check(connection)
        for schema in SCHEMAS:
            found = migrator.status(connection, schema)
            shown = {"missing": "not installed", "current": f"current, by {found.version}"}
            advice = {"missing": "postroad db install", "newer": "upgrade Postroad"}
            state, todo = found.state, advice.get(found.state, "postroad db upgrade")
            name = f"schema {schema.name}"
            yield _finding(name, found.is_current, shown.get(state, state), todo)
