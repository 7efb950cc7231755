"""Reopens what a power loss has left with the product, and compares it with the promises."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from postroad.errors import PostroadError
from postroad.intake.errors import UploadLost
from postroad.intake.stores.folder import FolderStore
from postroad.intake.stores.part import Part
from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.server_user import make_data_folder, server_user
from postroad.settings.server import VaultSettings
from postroad.vault import open_vault
from proof.power.programs import CONTROL_FILES, OBJECTS, PART_BYTES, PARTS, UPLOADED
from proof.power.trace import Tree

__all__ = ["SUBJECTS", "Facts", "Subject"]

Facts = list[dict[str, Any]]
PASSWORD = "correct"
SERVER = {"fsync": "off", "shared_buffers": "8MB", "max_connections": "20"}
# What starts of a server with these control files have shown; nothing else differs between them.
_started: dict[tuple[bytes, ...], list[str]] = {}


@dataclass(frozen=True)
class Subject:
    """Something that keeps files, and what it promises about them."""

    name: str
    promise: str
    check: Callable[[Path, Facts], list[str]]
    # Whether the program works in threads; else processes that it starts are not recorded.
    has_threads: bool = True

    def violations(self, tree: Tree, root: Path, promises: Facts) -> list[str]:
        """Write a tree to an empty folder, reopen it and return what does not hold."""
        tree.write(root)
        try:
            return self.check(root, promises)
        except (PostroadError, psycopg.Error, OSError) as failure:
            return [f"cannot be used: {type(failure).__name__}: {failure}"]


def check_vault(root: Path, promises: Facts) -> list[str]:
    """Every secret that was sealed can be opened."""
    data = root / "share" / "postroad"
    vault = open_vault(VaultSettings(), lambda: make_data_folder(data))
    found = []
    for each in promises:
        try:
            is_right = vault.open(each["sealed"]) == each["secret"]
        except PostroadError as failure:
            found.append(f"the secret {each['secret']} cannot be opened: {failure}")
        else:
            found += [] if is_right else [f"the secret {each['secret']} has changed"]
    return found


def check_store(root: Path, promises: Facts) -> list[str]:
    """Every stored object is there; what was begun can be ended; no object is incomplete."""
    return asyncio.run(_check_store(FolderStore(root / "srv" / "store"), promises))


async def _check_store(store: FolderStore, promises: Facts) -> list[str]:
    whole = {**OBJECTS, UPLOADED: b"".join(PARTS)}
    found = []
    promised = {each["object"] for each in promises if "object" in each}
    for key, content in whole.items():
        size = await store.size(key)
        if size is None:
            found += [f"{key} is missing"] if key in promised else []
        elif await store.read_range(key, 0, size) != content:
            found.append(f"{key} is incomplete or changed")
    if UPLOADED not in promised and any("begun" in each for each in promises):
        await _resume(store, promises)
    for key, content in OBJECTS.items():
        if key not in promised:
            await store.put(key, content, hashlib.sha256(content).hexdigest())
    for key, content in whole.items():
        if key in promised or key in OBJECTS or any("begun" in each for each in promises):
            size = await store.size(key)
            if size is None or await store.read_range(key, 0, size) != content:
                found.append(f"{key} is not whole after the import went on")
    return found


async def _resume(store: FolderStore, promises: Facts) -> None:
    """Go on as the importer does: from the parts in the journal, or from the start."""
    upload = next(each["upload"] for each in promises if "begun" in each)
    stored = {each["part"] for each in promises if "part" in each}
    try:
        await store.parts(UPLOADED, upload)
    except UploadLost:
        if len(stored) == len(PARTS) and await store.size(UPLOADED) == sum(map(len, PARTS)):
            return
        await store.abort(UPLOADED, upload)
        upload, stored = await store.begin(UPLOADED), set()
    parts = []
    for index, data in enumerate(PARTS):
        digest = hashlib.sha256(data).digest()
        if index not in stored:
            await store.put_part(UPLOADED, upload, index + 1, index * PART_BYTES, data, digest)
        parts.append(Part(index + 1, len(data), digest.hex(), digest))
    await store.complete(UPLOADED, upload, parts)


def check_cluster(root: Path, promises: Facts) -> list[str]:
    """A server that was created starts, and lets in whom it should."""
    data = root / "postroad" / "postgres" / "data"
    if not data.exists():
        # A server that was not created yet is created at the next start, as the first time.
        return ["the data directory is gone"] if promises else []
    contents = tuple((data / name).read_bytes() for name in CONTROL_FILES)
    if contents not in _started:
        user, made = server_user(), root.with_name("initialised")
        subprocess.run(["cp", "-a", "--no-clobber", f"{made}/.", data], check=True)
        for path in (data, *(data / name for name in CONTROL_FILES)):
            user.own(path, 0o700 if path.is_dir() else 0o600)
        try:
            _started[contents] = _check_server(root)
        except (PostroadError, psycopg.Error) as failure:
            _started[contents] = [f"the server cannot be used: {failure}"]
    return _started[contents]


def _check_server(root: Path) -> list[str]:
    server = EmbeddedServer(root / "postroad", configuration=SERVER)
    try:
        with server, psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute(f"create role visitor login password '{PASSWORD}'")
            rules = connection.execute("select error from pg_hba_file_rules").fetchall()
            mapped = connection.execute("select error from pg_ident_file_mappings").fetchall()
            found = [] if len(rules) == 4 and len(mapped) >= 1 else ["rules are missing"]
            found += [f"a rule is wrong: {error}" for (error,) in (*rules, *mapped) if error]
            for password in (PASSWORD, "wrong"):
                dsn = make_conninfo(server.dsn(), user="visitor", password=password)
                if _lets_in(dsn) != (password == PASSWORD):
                    found.append(f"the password {password} was handled wrongly")
            return found
    finally:
        # A start that failed half-way leaves it running.
        server.halt()


def _lets_in(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn):
            return True
    except psycopg.OperationalError:
        return False


SUBJECTS = (
    Subject("vault", "a sealed secret can be opened", check_vault),
    Subject(
        "store", "a stored object is whole, and an interrupted upload can continue", check_store
    ),
    Subject(
        "cluster",
        "a created server starts and checks passwords",
        check_cluster,
        has_threads=False,
    ),
)
