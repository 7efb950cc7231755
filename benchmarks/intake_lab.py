"""The servers of the intake's measurements: OpenSSH's sshd, rclone as the store and as the peer."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.lab import Lab
from postroad.cli.components import SCHEMAS
from postroad.intake import Credentials, operations
from postroad.postgres import install, run_blocking
from postroad.vault import Vault, new_key

__all__ = ["IntakeLab", "free_port", "open_intake_lab", "rclone", "wait_for"]

ACCESS_KEY, SECRET_KEY = "AKIDBENCH", "secret-of-the-bench"

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/hostkey
PidFile none
AuthorizedKeysFile {folder}/userkey.pub
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
MaxStartups 200
MaxSessions 200
"""
_RCLONE = """\
[source]
type = sftp
host = 127.0.0.1
port = {sftp}
user = {user}
key_file = {folder}/userkey
shell_type = {shell}
disable_hashcheck = {unchecked}
known_hosts_file = none

[store]
type = s3
provider = Rclone
access_key_id = {access}
secret_access_key = {secret}
endpoint = http://127.0.0.1:{s3}
"""


@dataclass(slots=True)
class IntakeLab:
    """Both servers, the files, and the two ways between them."""

    lab: Lab
    folder: Path
    sftp_port: int
    s3_port: int
    user: str
    numbers: int = 0

    @property
    def files(self) -> Path:
        """What the source serves."""
        return self.folder / "files"

    def ours(self, below: str, **settings: Any) -> dict[str, Any]:
        """Import a folder of the source by a process of its own, the whole way to the notice."""
        found = self._run(below, {}, {}, **settings)
        self.clear(f"run{self.numbers}")
        return found

    def scans(self, below: str, count: int, stable_checks: int) -> dict[str, Any]:
        """Scan a folder of the source `count` times by a process of its own."""
        return self._run(below, {"looks": stable_checks}, {"scans": count})

    def _run(
        self, below: str, server: dict[str, Any], given: dict[str, Any], **settings: Any
    ) -> dict[str, Any]:
        self.numbers += 1
        key = new_key()
        with psycopg.connect(self.lab.dsn) as connection:
            connection.execute("delete from intake.sftp_servers")
        row = run_blocking(
            self.lab.dsn,
            operations.create_server,
            Vault([key]),
            Credentials(private_key=(self.folder / "userkey").read_text()),
            {
                "name": f"run{self.numbers}",
                "host": "127.0.0.1",
                "port": self.sftp_port,
                "username": self.user,
                "directory": str(self.files / below),
                "looks": 1,
                "max_connections": 1,
                **server,
            },
        )
        given = {
            **given,
            "dsn": self.lab.dsn,
            "key": key,
            "server": row["id"],
            "settings": {
                "store": "s3://bucket",
                "s3_endpoint": f"http://127.0.0.1:{self.s3_port}",
                "s3_access_key": ACCESS_KEY,
                "s3_secret_key": SECRET_KEY,
                **settings,
            },
        }
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.intake_run"],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            cwd=self.lab.root,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def peer(self, *arguments: str, is_checked: bool = True) -> float:
        """Let rclone copy, and return the seconds it took; `run` in a target is made anew."""
        self.numbers += 1
        (self.folder / "rclone.conf").write_text(
            _RCLONE.format(
                sftp=self.sftp_port,
                s3=self.s3_port,
                user=self.user,
                folder=self.folder,
                access=ACCESS_KEY,
                secret=SECRET_KEY,
                shell="unix" if is_checked else "none",
                unchecked=str(not is_checked).lower(),
            )
        )
        target = f"store:bucket/peer{self.numbers}"
        command = [rclone(), "--config", str(self.folder / "rclone.conf"), *arguments, target]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        self.clear(f"peer{self.numbers}")
        return seconds

    def clear(self, below: str) -> None:
        """Remove what a run has stored."""
        place = self.folder / "s3" / "bucket" / below
        shutil.rmtree(place, ignore_errors=True)
        place.unlink(missing_ok=True)


def rclone() -> str:
    """Find rclone beside this Python."""
    return str(Path(sys.executable).parent / "rclone")


@contextmanager
def open_intake_lab(lab: Lab) -> Iterator[IntakeLab]:
    """Start both servers in memory, where there is room, and stop them afterwards."""
    with psycopg.connect(lab.dsn) as connection:
        for schema in SCHEMAS:
            install(connection, schema)
    memory = Path("/dev/shm")
    folder = Path(
        tempfile.mkdtemp(prefix="postroad-bench-", dir=memory if memory.is_dir() else None)
    )
    for name in ("files", "s3/bucket"):
        (folder / name).mkdir(parents=True)
    for name in ("hostkey", "userkey"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    sftp_port, s3_port = free_port(), free_port()
    (folder / "sshd_config").write_text(_SSHD.format(port=sftp_port, folder=folder))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    commands = [
        ["/usr/sbin/sshd", "-D", "-f", str(folder / "sshd_config")],
        [
            *[rclone(), "serve", "s3", "--addr", f"127.0.0.1:{s3_port}", str(folder / "s3")],
            *["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"],
        ],
    ]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]
    try:
        for port in (sftp_port, s3_port):
            wait_for(port)
        user = "root" if os.getuid() == 0 else os.environ["USER"]
        yield IntakeLab(lab, folder, sftp_port, s3_port, user)
    finally:
        for process in running:
            process.terminate()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def write_random(path: Path, size: int) -> None:
    """Write a file that does not compress."""
    piece = secrets.token_bytes(1024 * 1024)
    with path.open("wb") as file:
        for number in range(-(-size // len(piece))):
            file.write(
                number.to_bytes(8, "big") + piece[8 : min(len(piece), size - number * len(piece))]
            )


def free_port() -> int:
    """Find a port that nobody has."""
    for port in range(20000 + secrets.randbelow(5000), 32000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def wait_for(port: int) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nobody listens on {port}")
