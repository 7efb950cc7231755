"""The programs that are recorded: `python -m proof.power.programs NAME FOLDER PROMISES`.

Each uses the product below FOLDER as its callers do, and writes a line to PROMISES whenever a call
has returned whose effect must survive: from there on a caller relies on it, in the database.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from postroad.intake.stores.folder import FolderStore
from postroad.intake.stores.part import Part
from postroad.postgres.embedded import EmbeddedServer
from postroad.postgres.server_user import ServerUser, make_data_folder
from postroad.settings.server import VaultSettings
from postroad.vault import add_key, open_vault

__all__ = ["CONTROL_FILES", "OBJECTS", "PARTS", "PART_BYTES", "PROGRAMS", "UPLOADED"]

CONTROL_FILES = ["pg_hba.conf", "pg_ident.conf", "postgresql.conf"]
# Two in folders that are new, and one in a folder that an upload has made.
OBJECTS = {
    "acme/2026/orders.csv": b"id;amount\n1;10\n",
    "acme/2026/prices.csv": b"id;price\n1;99\n",
    "acme/2027/late.csv": b"id;late\n1;1\n",
}
UPLOADED = "acme/2027/large.bin"
PART_BYTES = 64
PARTS = (b"a" * PART_BYTES, b"b" * PART_BYTES, b"c" * 40)

Promise = Callable[..., None]


def run_vault(folder: Path, promise: Promise) -> None:
    """Seal a secret with a new key file, add a key, seal another secret."""
    data = folder / "share" / "postroad"
    for secret in ("first", "second"):
        vault = open_vault(VaultSettings(), lambda: make_data_folder(data))
        promise(sealed=vault.seal(secret), secret=secret)
        if secret == "first":
            add_key(data / "vault.key")


def run_store(folder: Path, promise: Promise) -> None:
    """Put objects, and upload one in parts into a folder that its beginning made."""
    asyncio.run(_store(FolderStore(folder / "srv" / "store"), promise))


async def _store(store: FolderStore, promise: Promise) -> None:
    first, second, third = OBJECTS
    await _put(store, first, promise)
    upload = await store.begin(UPLOADED)
    promise(begun=UPLOADED, upload=upload)
    parts = []
    for index, data in enumerate(PARTS):
        digest = hashlib.sha256(data).digest()
        number, offset = index + 1, index * PART_BYTES
        etag = await store.put_part(UPLOADED, upload, number, offset, data, digest)
        parts.append(Part(number, len(data), etag, digest))
        promise(part=index)
    await store.complete(UPLOADED, upload, parts)
    promise(object=UPLOADED)
    await _put(store, second, promise)
    await _put(store, third, promise)


async def _put(store: FolderStore, key: str, promise: Promise) -> None:
    await store.put(key, OBJECTS[key], hashlib.sha256(OBJECTS[key]).hexdigest())
    promise(object=key)


def run_cluster(folder: Path, promise: Promise) -> None:
    """Create the data directory of the embedded server."""
    server = EmbeddedServer(folder / "postroad")
    cluster = server.cluster
    cluster.make_folders()
    user = _CopyingUser(**dataclasses.asdict(cluster.user), folder=folder, promise=promise)
    dataclasses.replace(cluster, user=user).create(must_sync=True)
    promise(created=True)


@dataclasses.dataclass(frozen=True, slots=True)
class _CopyingUser(ServerUser):
    """Copies what initdb has made: it is durable, because initdb syncs it."""

    folder: Path
    promise: Promise

    def run(
        self, command: Sequence[str], *, timeout: float | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run initdb."""
        done = ServerUser.run(self, command, timeout=timeout, cwd=cwd)
        made = next(Path(word.split("=")[1]) for word in command if word.startswith("--pgdata="))
        copy = self.folder.with_name("initialised")
        subprocess.run(["cp", "-a", made, copy], check=True)
        self.promise(copied=str(copy), to=str(made.relative_to(self.folder)), files=CONTROL_FILES)
        return done


PROGRAMS: dict[str, Callable[[Path, Promise], None]] = {
    "vault": run_vault,
    "store": run_store,
    "cluster": run_cluster,
}


def main() -> None:
    """Run the named program."""
    name, folder, promises = sys.argv[1:]
    with open(promises, "ab", buffering=0) as file:  # noqa: PTH123 - one call for each line

        def promise(**facts: Any) -> None:
            os.write(file.fileno(), json.dumps(facts).encode() + b"\n")

        PROGRAMS[name](Path(folder), promise)


if __name__ == "__main__":
    main()
