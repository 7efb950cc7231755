"""Reads stored files and checks that they are unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from postroad.exchange.content import inline
from postroad.exchange.errors import FileCorrupt, FileMissing, FileUnsafe, StorageFailed
from postroad.exchange.files import CHUNK_BYTES, Storage
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file for an answer: inline up to a limit, otherwise as a link."""

    move: Move
    href: str
    limit_bytes: int


async def verified(mover: Mover, move: Move, *, limit_bytes: int) -> bytes | None:
    """Return the bytes of a small file, None for a larger one whose size is right.

    A missing or changed file is put in quarantine. Raises FileCorrupt.
    """
    is_small, is_searched = move.size <= limit_bytes, False
    try:
        while True:
            try:
                return await mover.in_thread(_read, mover.storage, move, is_small)
            except FileMissing:
                before, move = move, await mover.found(move)
                if move.object != before.object:
                    continue
                if is_searched:
                    raise
                # Its rename may not be done yet, or a server that was suspended meanwhile has
                # followed an older plan: the redo finishes it, or finds the file where it is.
                is_searched = True
                await mover.follow_again(move)
    except FileMissing as missing:
        reason = "the file is missing"
        await mover.quarantine(move, reason, is_there=False)
        raise FileCorrupt(f"{move.name}: {reason}") from missing
    except (FileCorrupt, FileUnsafe) as corrupt:
        await mover.quarantine(move, str(corrupt), is_there=True)
        raise FileCorrupt(str(corrupt)) from corrupt


async def read_inline_many(
    mover: Mover, files: Sequence[Wanted], *, skips_unreadable: bool = False
) -> list[dict[str, Any] | None]:
    """Return the contents for an answer, None for a file that was put in quarantine.

    Files that cannot be read are retried one by one. With `skips_unreadable` the files of an
    unreadable folder are left out instead of failing the call.
    """
    skipped = (FileCorrupt, StorageFailed) if skips_unreadable else (FileCorrupt,)
    found: list[dict[str, Any] | None] = []
    share = mover.storage.read_share
    shares = [files[begin : begin + share] for begin in range(0, len(files), share)]
    read = await asyncio.gather(*(mover.in_thread(_read_many, mover, some) for some in shares))
    for file, stored in zip(files, itertools.chain.from_iterable(read), strict=True):
        move = file.move
        try:
            if isinstance(stored, Exception):
                stored = await verified(mover, move, limit_bytes=file.limit_bytes)
        except skipped:
            found.append(None)
        else:
            link = {"href": file.href, "media_type": move.media_type or "application/json"}
            found.append(link if stored is None else inline(stored, move.media_type))
    return found


async def stream(mover: Mover, move: Move) -> AsyncIterator[bytes]:
    """Yield a file chunk by chunk; the last one only if the digest is right.

    A client that reads a corrupt file gets fewer bytes than announced, and so detects it.
    """
    await verified(mover, move, limit_bytes=-1)
    move = await mover.found(move)
    where = move.database, move.folder or "Messages", move.stored_name
    file = await mover.in_thread(mover.storage.open_file, *where)
    digest = hashlib.sha256()
    with contextlib.closing(file):
        held = b""
        while chunk := await mover.in_thread(file.read, CHUNK_BYTES):
            digest.update(chunk)
            if held:
                yield held
            held = chunk
    if digest.hexdigest() != move.sha256:
        await mover.quarantine(move, "the content has changed", is_there=True)
        raise FileCorrupt(f"the content of {move.name} has changed")
    yield held


def _read_many(mover: Mover, files: Sequence[Wanted]) -> list[bytes | Exception | None]:
    found: list[bytes | Exception | None] = []
    with mover.storage.session() as session:
        for file in files:
            try:
                found.append(_read(session, file.move, file.move.size <= file.limit_bytes))
            except (OSError, FileCorrupt, FileMissing, FileUnsafe, StorageFailed) as failure:
                found.append(failure)
    return found


def _read(storage: Storage, move: Move, is_small: bool) -> bytes | None:
    folder = move.folder or "Messages"
    try:
        wanted = move.size if is_small else -1
        size, stored = storage.load(move.database, folder, move.stored_name, wanted)
    except FileNotFoundError as missing:
        # Raises again if the folder itself is missing, because then no single message is corrupt.
        with storage.folder(move.database, folder):
            raise FileMissing(f"{move.name} is missing") from missing
    if size != move.size:
        raise FileCorrupt(f"{move.name} has {size} bytes instead of {move.size}")
    if not is_small:
        return None
    if hashlib.sha256(stored).hexdigest() != move.sha256:
        raise FileCorrupt(f"the content of {move.name} has changed")
    return stored
