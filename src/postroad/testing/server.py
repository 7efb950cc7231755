"""A PostgreSQL for tests: one per version and test run, shared by all parallel workers.

It is an `EmbeddedServer` without fsync, because its data is only needed during the run; it survives
a crash of its processes, but not of the machine. The template database is installed once, under a
file lock; each test clones it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import psycopg
from psycopg import sql

from postroad.postgres.binaries import find_binaries
from postroad.postgres.connections import create_database
from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.locks import control_lock
from postroad.postgres.manifest import Schema, read_manifest
from postroad.postgres.migrator import install

_WITHOUT_DURABILITY = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "128MB",
    "max_wal_size": "512MB",
    "deadlock_timeout": "200ms",
    # Compiling costs more than it saves if each query runs a few times on a few rows.
    "jit": "off",
}


class TestServer:
    """A running server and its databases for tests."""

    # Otherwise pytest would collect it as a class of tests.
    __test__ = False

    def __init__(self, folder: Path, bin_folder: Path | None = None) -> None:
        self._folder = folder
        self._embedded = EmbeddedServer(
            folder, bin_folder=bin_folder, configuration=_WITHOUT_DURABILITY
        )
        self._numbers = itertools.count(1)
        self._templates: dict[tuple[Schema, ...], str] = {}

    @classmethod
    def of_run(cls, run_folder: Path, bin_folder: Path | None = None) -> TestServer:
        """Return the server of a test run that uses these programs (default: embedded)."""
        binaries = find_binaries(bin_folder)
        folder = run_folder / str(binaries.major)
        folder.mkdir(mode=0o755, exist_ok=True)
        # Read by the process that cleans up, which may differ from the one that starts.
        (folder / "bin_folder").write_text(str(bin_folder or ""), encoding="utf-8")
        return cls(folder, bin_folder)

    @property
    def embedded(self) -> EmbeddedServer:
        """The embedded server, for tests that stop or kill it; not for the shared server."""
        return self._embedded

    @property
    def major(self) -> int:
        """The major version of the server."""
        return self._embedded.cluster.binaries.major

    def start(self) -> None:
        """Start the server or join those that use it."""
        self._embedded.start()

    def stop(self) -> None:
        """Leave the server; the last process to leave stops it."""
        self._embedded.stop()

    def dsn(self, database: str) -> str:
        """Return the DSN of a database, as superuser."""
        return self._embedded.dsn(database)

    def create(self, template: str = "template0") -> str:
        """Create a database for this process and return its name."""
        # Short, because names of roles are made from it and must stay below 63 bytes.
        name = f"t{os.getpid():x}_{next(self._numbers)}"
        # Copies the files; the default writes each page to the log, which takes more CPU time.
        self._administer("create database {} template {} strategy file_copy", name, template)
        if template != "template0":
            # The bus of a clone keeps the template's node name, which maintenance would change.
            with psycopg.connect(self.dsn(name), autocommit=True) as connection:
                found = connection.execute("select to_regproc('mbus._stay') is not null").fetchone()
                if found and found[0]:
                    connection.execute("select mbus._stay()")
        return name

    def drop(self, name: str) -> None:
        """Drop a database, also one with connections, and the roles named after it."""
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            drop = sql.SQL("drop database if exists {} with (force)")
            connection.execute(drop.format(sql.Identifier(name)))
            roles = connection.execute(
                # The owner is dropped last, because it has granted the other roles.
                "select rolname from pg_roles where starts_with(rolname, %s) order by rolname = %s",
                (f"mbus_{name}_", f"mbus_{name}_owner"),
            ).fetchall()
            for (role,) in roles:
                connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    @contextmanager
    def clone(self, *schemas: Schema) -> Iterator[str]:
        """Return the DSN of a fresh database with these schemas installed; drop it afterwards."""
        if schemas and schemas not in self._templates:
            self._templates[schemas] = self.template(*schemas)
        name = self.create(self._templates[schemas] if schemas else "template0")
        try:
            yield self.dsn(name)
        finally:
            self.drop(name)

    def template(self, *schemas: Schema) -> str:
        """Return the name of a database with these schemas installed, making it if it is missing.

        Critical section: the file lock. The database gets its final name when it is complete.
        """
        digest = hashlib.sha256()
        for schema in schemas:
            digest.update(f"{schema.name} {schema.package}".encode())
            manifest = read_manifest(schema)
            bodies = [file.body for file in manifest.files]
            bodies += [migration.body for migration in manifest.migrations]
            digest.update("".join(bodies).encode())
        # Short, because names of roles are made from it and must stay below 63 bytes.
        name = f"tm_{digest.hexdigest()[:12]}"
        with control_lock(self._folder / "template.lock", 120):
            with psycopg.connect(self.dsn("postgres")) as connection:
                found = connection.execute("select from pg_database where datname = %s", (name,))
            if found.rowcount == 0:
                unfinished = f"{name}_u"
                self._administer("drop database if exists {} with (force)", unfinished)
                create_database(self.dsn(unfinished), unfinished)
                with psycopg.connect(self.dsn(unfinished)) as connection:
                    for schema in schemas:
                        install(connection, schema)
                self._administer("alter database {} rename to {}", unfinished, name)
        return name

    def _administer(self, statement: LiteralString, *names: str) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
