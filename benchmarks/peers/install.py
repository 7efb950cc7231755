"""Installs the peers into folders of their own, so that they never meet Postroad's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["NotInstalled", "installed_node_peer", "installed_peer", "installed_peers"]

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
PACKAGES = ("procrastinate", "pgqueuer", "asyncpg", "pgmq", "psycopg[binary,pool]", "uvloop")


class NotInstalled(Exception):
    """A peer could not be installed; the text says why."""


def installed_peers(root: Path) -> Path:
    """Return the folder with the peers that are measured side by side in one environment."""
    return _installed(root / ".cache" / "benchmark-peers", PACKAGES)


def installed_peer(root: Path, name: str, packages: tuple[str, ...]) -> Path:
    """Return the folder of one peer. Raises NotInstalled."""
    return _installed(root / ".cache" / "benchmark-peer" / name, packages)


def installed_node_peer(root: Path, name: str, package: str) -> Path:
    """Return the folder into which npm installs a package and its version. Raises NotInstalled."""
    folder = root / ".cache" / "benchmark-peer" / name
    stamp = folder / "installed.txt"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != package:
        if shutil.which("node") is None or shutil.which("npm") is None:
            raise NotInstalled("Node.js is not installed")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Without a package file of its own npm installs into a folder above that has one.
        (folder / "package.json").write_text("{}", encoding="utf-8")
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", package]
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "NPM_CONFIG_UPDATE_NOTIFIER": "false"},
        )
        if done.returncode != 0:
            raise NotInstalled(f"npm could not install {package}: {done.stderr.strip()[-300:]}")
        stamp.write_text(package, encoding="utf-8")
    return folder


def _installed(folder: Path, packages: tuple[str, ...]) -> Path:
    """Install the packages when they are missing or were repinned."""
    stamp = folder / "constraints.txt"
    wanted = CONSTRAINTS.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _install(folder, packages)
        stamp.write_text(wanted, encoding="utf-8")
    return folder


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    target = ["--quiet", "--target", str(folder), "-c", str(CONSTRAINTS), *packages]
    # The environment may have been made by uv, which puts no pip into it.
    base = getattr(sys, "_base_executable", sys.executable)
    commands = [
        ["uv", "pip", "install", "--python", sys.executable, *target],
        [sys.executable, "-m", "pip", "install", *target],
        [base, "-m", "pip", "install", *target],
    ]
    errors = []
    for command in commands:
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        errors.append(done.stderr.strip()[-500:])
    raise NotInstalled("the peers could not be installed: " + "; ".join(errors))
