"""Former versions of the product, from the history of the repository.

A version of the schemas is a set of migrations. Each commit that changed one of them stands for
the version that it made, and the parent of the first for the oldest one.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from proof.options import ROOT

__all__ = ["Version", "current", "former", "run_program"]

_MIGRATIONS = ":(glob)src/postroad/*/sql/migrations/*"
# The oldest version whose migrations are numbered as they are today.
_OLDEST = "a816ebe2^"
PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True)
class Version:
    """A version: its commit, its migrations, and where its source is."""

    commit: str
    migrations: frozenset[str]
    # Where versions are unpacked; None for this checkout.
    folder: Path | None = None

    @property
    def source(self) -> Path:
        """The source of this version, unpacked when it is needed first."""
        if self.folder is None:
            return ROOT / "src"
        if not (self.folder / self.commit).exists():
            packed = subprocess.run(
                ["git", "archive", self.commit, "src"], cwd=ROOT, capture_output=True, check=True
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                archive.extractall(self.folder / self.commit, filter="data")
        return self.folder / self.commit / "src"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process of this version."""
        return {**os.environ, "PYTHONPATH": str(self.source)}

    def install(self, dsn: str, verb: str = "install") -> None:
        """Install or upgrade all schemas with the command line of this version."""
        done = subprocess.run(
            [sys.executable, "-m", "postroad", "db", verb],
            env={**self.environment, "POSTROAD_DATABASE_URL": dsn},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"db {verb} of {self.commit}: {done.stdout}{done.stderr}")


def current() -> Version:
    """Return the version of this checkout."""
    files = (ROOT / "src" / "postroad").glob("*/sql/migrations/*.sql")
    names = frozenset(file.relative_to(ROOT / "src").as_posix() for file in files)
    return Version("this", names)


def former(folder: Path) -> list[Version]:
    """Return the former versions, oldest first; they are unpacked into the folder.

    Left out are versions that had a migration which was renamed or withdrawn later.
    """
    base = _git("rev-parse", "--short=10", _OLDEST).strip()
    changed = _git(
        "log",
        "--first-parent",
        "--reverse",
        "--format=%h",
        "--abbrev=10",
        f"{base}..",
        "--",
        _MIGRATIONS,
    )
    newest = current().migrations
    versions: dict[frozenset[str], str] = {}
    for commit in (base, *changed.split()):
        listed = _git("ls-tree", "-r", "--name-only", commit, "--", "src/postroad").split()
        names = frozenset(
            name.removeprefix("src/")
            for name in listed
            if "/sql/migrations/" in name and name.endswith(".sql")
        )
        if names <= newest and names != newest:
            versions.setdefault(names, commit)
    return [Version(commit, names, folder) for names, commit in versions.items()]


def run_program(version: Version, *words: str) -> str:
    """Run the program to its end under a version; return what it prints."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env=version.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"program {words[0]} of {version.commit}: {done.stderr[-2000:]}")
    return done.stdout


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
