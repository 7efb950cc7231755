"""The SQL files of a component: those in `install.sql`, and the migrations.

The first folder of a path determines the kind of the file:

| path | kind | when it runs |
|---|---|---|
| `tables/` | table | on a fresh install only |
| `internal/`, `functions/`, `views/`, `grants.sql` | code | when its text changed |
| `templates/<name>.sql` | template | stored as text when it changed |
| `after.sql` | after | last, whenever anything was installed or replaced |
| `migrations/NNNN_expand_x.sql`, `NNNN_contract_x.sql` | migration | once, on an existing install |

A line `templates/*.sql` lists all files of that folder, by name.

Migrations are not listed: their numbers are their order. A contract migration breaks older code
unless it contains `-- breaks older: no`, an expand one does not unless it contains `yes`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal

from postroad.postgres.errors import ManifestBroken

FileKind = Literal["table", "code", "template", "after"]

_KINDS: dict[str, FileKind] = {
    "tables": "table",
    "internal": "code",
    "functions": "code",
    "views": "code",
    "grants.sql": "code",
    "templates": "template",
    "after.sql": "after",
}
_MIGRATION_NAME = re.compile(r"^(\d{4})_(expand|contract)_[a-z0-9_]+$")
_BREAKS_OLDER = re.compile(r"^--\s*breaks older:\s*(yes|no)\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Schema:
    """A component's schema: its name, the package whose `sql/` describes it, what it needs."""

    name: str
    package: str
    extensions: tuple[str, ...] = ()
    acts_on_tables_of_users: bool = False


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One listed file."""

    path: str
    kind: FileKind
    body: str

    @property
    def checksum(self) -> str:
        """The checksum by which a change is detected."""
        return hashlib.sha256(self.body.encode()).hexdigest()

    @property
    def template_name(self) -> str:
        """The name under which a template is stored."""
        return self.path.removeprefix("templates/").removesuffix(".sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of an existing install."""

    name: str
    body: str
    breaks_older: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """All SQL of a component, in the order in which it runs."""

    files: tuple[SqlFile, ...]
    migrations: tuple[Migration, ...]

    @property
    def replaceable(self) -> tuple[SqlFile, ...]:
        """What is replaced when its text changed."""
        return tuple(file for file in self.files if file.kind in ("code", "template"))


def read_manifest(schema: Schema) -> Manifest:
    """Read a component's files. Raises ManifestBroken when they contradict each other."""
    folder = _sql_folder(schema)
    manifest = folder.joinpath("install.sql")
    if not manifest.is_file():
        raise ManifestBroken(f"the package {schema.package} has no sql/install.sql")
    listed: list[SqlFile] = []
    for line in manifest.read_text(encoding="utf-8").splitlines():
        path = line.partition("--")[0].strip()
        listed.extend(_listed_file(folder, each) for each in _expanded(folder, path))
    paths = [file.path for file in listed]
    if len(set(paths)) != len(paths):
        twice = sorted({path for path in paths if paths.count(path) > 1})
        raise ManifestBroken(f"listed twice in install.sql: {', '.join(twice)}")
    return Manifest(tuple(listed), _migrations(folder))


def _sql_folder(schema: Schema) -> Traversable:
    # Found from the top-level package, because finding a package imports it, with its libraries.
    top, *below = schema.package.split(".")
    return files(top).joinpath(*below, "sql")


def _expanded(folder: Traversable, path: str) -> list[str]:
    """Return the paths that a line lists: one, none, or with `/*.sql` all files of a folder."""
    directory, _, pattern = path.rpartition("/")
    if pattern != "*.sql":
        return [path] if path else []
    names = (entry.name for entry in folder.joinpath(directory).iterdir())
    return sorted(f"{directory}/{name}" for name in names if name.endswith(".sql"))


def _listed_file(folder: Traversable, path: str) -> SqlFile:
    kind = _KINDS.get(path.partition("/")[0])
    if kind is None or not path.endswith(".sql") or ".." in path:
        raise ManifestBroken(
            f"install.sql lists {path}, which is not a kind of file that a component has"
        )
    file = folder.joinpath(*path.split("/"))
    if not file.is_file():
        raise ManifestBroken(f"install.sql lists {path}, which does not exist")
    return SqlFile(path, kind, file.read_text(encoding="utf-8"))


def _migrations(folder: Traversable) -> tuple[Migration, ...]:
    directory = folder.joinpath("migrations")
    if not directory.is_dir():
        return ()
    migrations: dict[str, Migration] = {}
    for entry in sorted(directory.iterdir(), key=lambda entry: entry.name):
        if not entry.name.endswith(".sql"):
            continue
        name = entry.name.removesuffix(".sql")
        found = _MIGRATION_NAME.match(name)
        if found is None:
            raise ManifestBroken(f"migrations/{entry.name}: named neither expand nor contract")
        if found[1] in migrations:
            raise ManifestBroken(f"two migrations are numbered {found[1]}")
        body = entry.read_text(encoding="utf-8")
        declared = _BREAKS_OLDER.search(body)
        breaks = declared[1].lower() == "yes" if declared else found[2] == "contract"
        migrations[found[1]] = Migration(name, body, breaks)
    return tuple(migrations.values())
