"""The user of the embedded server: the current user, or a system user if that is root.

PostgreSQL refuses to run as root. As root, Postroad therefore runs it as the system user
`postroad`, which it creates when missing. That user may be unable to enter a folder of root (such
as `/root`); the server then uses a folder below `/var/lib/postroad`. Permissions of existing
folders are never widened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroad.postgres.errors import ServerUserMissing

SYSTEM_USER = "postroad"
SYSTEM_FOLDER = Path("/var/lib/postroad")


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user that the server runs as; `is_other` when it is not the one running this process."""

    name: str
    uid: int
    gid: int
    is_other: bool

    def run(
        self, command: Sequence[str], *, timeout: float | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as that user, with an environment that does not configure PostgreSQL."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("PG", "LC_"))}
        named = {"LANG": "C", "HOME": str(cwd or "/"), "USER": self.name, "LOGNAME": self.name}
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            cwd=cwd or "/",
            env=kept | named,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def own(self, path: Path, mode: int) -> None:
        """Change the owner of a file or folder that Postroad created to the server's user."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)
        path.chmod(mode)

    def can_reach(self, folder: Path) -> bool:
        """Whether the server's user can enter a folder."""
        if not self.is_other:
            return True
        there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
        command = ["/bin/sh", "-c", 'cd "$1" 2>/dev/null', "sh", str(there)]
        return self.run(command).returncode == 0


def server_user() -> ServerUser:
    """Return the user of the server. As root, create the system user if it is missing."""
    uid = os.geteuid()
    if uid != 0:
        return ServerUser(_name_of(uid), uid, os.getegid(), is_other=False)
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        entry = _created_system_user()
    return ServerUser(entry.pw_name, entry.pw_uid, entry.pw_gid, is_other=True)


def data_folder_default() -> Path:
    """Return the default data folder: the system's for root, else the user's."""
    if os.geteuid() == 0:
        return SYSTEM_FOLDER
    share = os.environ.get("XDG_DATA_HOME")
    return (Path(share) if share else Path.home() / ".local" / "share") / "postroad"


def make_data_folder(folder: Path) -> Path:
    """Create a data folder that other users cannot read; an existing one stays as it is.

    For root, the server's user gets permission to enter the folder, and nothing more.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(exist_ok=True)
        missing.chmod(mode)
    return folder


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        # Containers run as numbers without a name; PostgreSQL itself needs one.
        raise ServerUserMissing(
            f"the user {uid} has no entry in the list of users, and PostgreSQL needs one",
            hint="add the user to /etc/passwd, or name a database in POSTROAD_DATABASE_URL",
        ) from None


def _created_system_user() -> pwd.struct_passwd:
    folder = os.open(SYSTEM_FOLDER.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(SYSTEM_USER)
        _create_system_user()
        return pwd.getpwnam(SYSTEM_USER)
    finally:
        os.close(folder)


def _create_system_user() -> None:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    failure = "there is no useradd"
    if useradd is not None:
        options = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
        made = subprocess.run(
            [useradd, *options, "--home-dir", str(SYSTEM_FOLDER), SYSTEM_USER],
            capture_output=True,
            text=True,
            check=False,
        )
        # 9: another program has created it since the check.
        if made.returncode in (0, 9):
            return
        failure = made.stderr.strip()
    raise ServerUserMissing(
        f"PostgreSQL does not run as root, and the user {SYSTEM_USER} cannot be created: {failure}",
        hint=f"create a system user named {SYSTEM_USER}, run as another user, "
        "or name a database in POSTROAD_DATABASE_URL",
    )
