"""A PostgreSQL data directory on disk and its configuration files.

Safe defaults: data checksums, fsync, UTF-8 with the C.UTF-8 locale, a unix socket in a folder that
only the server's user (and root) can enter, no TCP unless configured. The superuser `postroad`
is authenticated by the kernel (peer), every other role by its password (SCRAM).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from postroad.durable import sync, sync_folders
from postroad.postgres.binaries import Binaries
from postroad.postgres.errors import DataFolderRefused, ServerNotStarted
from postroad.postgres.server_user import ServerUser, make_data_folder

SUPERUSER = "postroad"
# The path of a unix socket has 107 bytes at most; the name of the socket needs some of them.
MAX_SOCKET_FOLDER_BYTES = 85

_HBA = f"""\
# Written by Postroad.
local all {SUPERUSER} peer map=postroad
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
host all all ::1/128 scram-sha-256
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The folder `postgres/` of a data folder: data directory, socket, logs and locks."""

    home: Path
    binaries: Binaries
    user: ServerUser

    @property
    def data(self) -> Path:
        """PostgreSQL's own data directory."""
        return self.home / "data"

    @property
    def logs(self) -> Path:
        """The folder of the server's logs."""
        return self.home / "logs"

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket: in the data folder, or a short one where that is too long."""
        inside = self.home / "run"
        if len(os.fsencode(inside)) <= MAX_SOCKET_FOLDER_BYTES:
            return inside
        name = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"postroad-{self.user.uid}-{name}"

    def make_folders(self) -> None:
        """Create missing folders around the data directory, closed to other users."""
        make_data_folder(self.home.parent)
        for folder in (self.home, self.logs, self.socket_folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in (os.geteuid(), self.user.uid):
                raise DataFolderRefused(f"{folder} belongs to another user")
            self.user.own(folder, 0o700)
        if not self.user.can_reach(self.home):
            raise DataFolderRefused(
                f"the user {self.user.name} cannot enter {self.home}",
                hint="choose another data folder: POSTROAD_DATA_FOLDER",
            )

    def remove_socket_folder(self) -> None:
        """Remove the short socket folder of a stopped server."""
        if not self.socket_folder.is_relative_to(self.home):
            with contextlib.suppress(OSError):
                self.socket_folder.rmdir()

    def create(self, *, must_sync: bool) -> None:
        """Create the data directory unless it exists. An incomplete one is never used."""
        if self.data.exists():
            self._refuse_other_versions()
        else:
            self._initialise(must_sync=must_sync)
        if must_sync:
            # Also if it exists: its creator may have been killed before this.
            sync_folders(self.home)

    def _initialise(self, *, must_sync: bool) -> None:
        unfinished = self.home / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        options = [f"--pgdata={unfinished}", f"--username={SUPERUSER}", "--encoding=UTF8"]
        options += ["--auth-local=peer", "--auth-host=scram-sha-256", "--data-checksums"]
        if self.binaries.major >= 17:
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        else:
            options.append("--locale=C.UTF-8")
        if not must_sync:
            options.append("--no-sync")
        made = self.user.run([self.binaries.program("initdb"), *options], cwd=self.home)
        if made.returncode != 0:
            raise ServerNotStarted(
                f"initdb failed: {(made.stderr or made.stdout).strip()}",
                hint=f"check the disk and the permissions of {self.home}",
            )
        self._write(unfinished / "pg_hba.conf", _HBA)
        names = sorted({self.user.name, "root"})
        mapping = "".join(f"postroad {name} {SUPERUSER}\n" for name in names)
        self._write(unfinished / "pg_ident.conf", f"# Written by Postroad.\n{mapping}")
        with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("\n# Written by Postroad at each start; local.conf is yours and wins.\n")
            conf.write("include_if_exists = 'postroad.conf'\ninclude_if_exists = 'local.conf'\n")
        if must_sync:
            for name in ("pg_hba.conf", "pg_ident.conf", "postgresql.conf"):
                sync(unfinished / name)
        unfinished.rename(self.data)

    def configure(self, options: Mapping[str, str]) -> None:
        """Write the options that the next start uses."""
        quoted = {name: value.replace("'", "''") for name, value in options.items()}
        lines = [f"{name} = '{value}'\n" for name, value in quoted.items()]
        self._write(self.data / "postroad.conf", "".join(("# Written by Postroad.\n", *lines)))

    def log_tail(self) -> str:
        """Return the end of the newest log, which contains the reason of a failure."""
        newest = max(self.logs.glob("*.log"), key=lambda log: log.stat().st_mtime, default=None)
        if newest is None:
            return ""
        lines = newest.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-4:])

    def _refuse_other_versions(self) -> None:
        try:
            found = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise DataFolderRefused(
                f"{self.data} is not a PostgreSQL data directory",
                hint="choose another data folder: POSTROAD_DATA_FOLDER",
            ) from None
        if found != str(self.binaries.major):
            raise DataFolderRefused(
                f"{self.data} belongs to PostgreSQL {found}, the programs here are "
                f"{self.binaries.version}",
                hint="move it with pg_upgrade or pg_dump, name the old programs in "
                "POSTROAD_EMBEDDED__BIN_FOLDER, or choose another data folder",
            )

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        self.user.own(path, 0o600)
