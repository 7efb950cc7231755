"""The SQL files of a component, in the order in which they run, and the migrations.

The first folder of a path determines the kind of the file. Folders run in the order of this table,
their files by name, but the paths in `install.sql`, if there is one, before others of their folder:

| path | kind | when it runs |
|---|---|---|
| `tables/` | table | on a fresh install only |
| `internal/`, `functions/` | code | when its text changed |
| `templates/<name>.sql` | template | stored as text when it changed |
| `after.sql` | after | whenever anything was installed or replaced |
| `views/`, `grants.sql` | code | when its text changed |
| `migrations/NNNN_expand_x.sql`, `NNNN_contract_x.sql` | migration | once, on an existing install |

Bodies of functions are checked when they are called, so functions need no order among themselves.
Views follow the functions of all queues, because a replaced view is locked until the transaction
ends. The numbers of migrations are their order. A contract migration breaks older code unless it
contains `-- breaks older: no`, an expand one does not unless it contains `yes`. The line `--
creates: tables/x.sql` stands for the current text of that file, so a later migration must have no
effect on a table that already has its change (`add column if not exists`).

Statements above the line `-- the rest runs with the upgrade` run before it in a short transaction,
so that their locks on tables that every call reads do not last until the functions of all queues
are replaced. They must be repeatable, and former functions must work with their changes.
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
    "templates": "template",
    "after.sql": "after",
    "views": "code",
    "grants.sql": "code",
}
_MIGRATION_NAME = re.compile(r"^(\d{4})_(expand|contract)_[a-z0-9_]+$")
_CREATES = re.compile(r"^-- creates: (tables/\w+\.sql)$", re.MULTILINE)
_AHEAD = "-- the rest runs with the upgrade\n"
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
    """One file other than a migration."""

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
    """One numbered step of an existing install; `ahead` runs before the upgrade."""

    name: str
    ahead: str
    body: str
    breaks_older: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """All SQL of a component, in the order in which it runs."""

    files: tuple[SqlFile, ...]
    migrations: tuple[Migration, ...]

    @property
    def replaceable(self) -> tuple[SqlFile, ...]:
        """The files that are replaced when their text changes."""
        return tuple(file for file in self.files if file.kind in ("code", "template"))


def read_manifest(schema: Schema) -> Manifest:
    """Read a component's files. Raises ManifestBroken when they contradict each other."""
    # Found from the top-level package, because finding a sub-package imports it with its libraries.
    top, *below = schema.package.split(".")
    folder = files(top).joinpath(*below, "sql")
    manifest = folder.joinpath("install.sql")
    lines = manifest.read_text(encoding="utf-8").splitlines() if manifest.is_file() else []
    first = [path for line in lines if (path := line.partition("--")[0].strip())]
    found = [
        SqlFile(path, kind, folder.joinpath(path).read_text(encoding="utf-8"))
        for place, kind in _KINDS.items()
        for path in _paths(folder, place, first)
    ]
    if not found:
        raise ManifestBroken(f"the package {schema.package} has no SQL files")
    if absent := set(first) - {file.path for file in found}:
        raise ManifestBroken(f"install.sql lists {min(absent)}, which the component does not have")
    return Manifest(tuple(found), _migrations(folder))


def _paths(folder: Traversable, place: str, first: list[str]) -> list[str]:
    """Return the paths in one place of `_KINDS`, in the order in which they run."""
    entry = folder.joinpath(place)
    if not entry.is_dir():
        return [place] if entry.is_file() else []
    names = sorted(file.name for file in entry.iterdir() if file.name.endswith(".sql"))
    paths = [f"{place}/{name}" for name in names]
    return list(dict.fromkeys([path for path in first if path in paths] + paths))


def _migrations(folder: Traversable) -> tuple[Migration, ...]:
    migrations: dict[str, Migration] = {}
    for path in _paths(folder, "migrations", []):
        name = path.removeprefix("migrations/").removesuffix(".sql")
        found = _MIGRATION_NAME.match(name)
        if found is None:
            raise ManifestBroken(f"{path}: named neither expand nor contract")
        if found[1] in migrations:
            raise ManifestBroken(f"two migrations are numbered {found[1]}")
        text = folder.joinpath(path).read_text(encoding="utf-8")
        declared = _BREAKS_OLDER.search(text)
        breaks = declared[1].lower() == "yes" if declared else found[2] == "contract"
        for table in _CREATES.findall(text):
            if not folder.joinpath(table).is_file():
                raise ManifestBroken(f"{path} creates {table}, which the component does not have")
            text = text.replace(
                f"-- creates: {table}", folder.joinpath(table).read_text(encoding="utf-8")
            )
        ahead, _, body = text.rpartition(_AHEAD)
        migrations[found[1]] = Migration(name, ahead, body, breaks)
    return tuple(migrations.values())
