"""Lists a folder of an SFTP server page by page; never holds a whole folder in memory.

Links are ignored unless the server's settings follow them; then each folder is entered once, by its
real path, so that a loop of links ends. Only the watched folder must be readable; others are
reported and skipped. The folder into which imported files are moved is not entered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import cast
from zlib import crc32

import asyncssh
from asyncssh import SFTPAttrs

from postroad.intake.cleanup import folder_below
from postroad.intake.errors import FileVanished, RemoteFileError, SourceForbidden
from postroad.intake.keys import shown_name
from postroad.intake.rules import Rules
from postroad.intake.source import Source, answering, encoded, size_and_mtime
from postroad.postgres.calls import Row

# On average: a page ends at a name with a certain checksum, so a new file changes only its own.
PAGE_FILES = 1000
# OpenSSH returns this many entries in one response.
PIECE_ENTRIES = 100
MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class Entry:
    """One wanted file, or a done-file and the path of the file that it declares complete."""

    path: bytes
    size: int
    mtime: int
    done_for: bytes | None = None


@dataclass(slots=True)
class Listing:
    """One scan; its counts and problems make the report."""

    source: Source
    server: Row
    files: int = 0
    folders: int = 0
    links_passed_over: int = 0
    problems: list[str] = field(default_factory=list)

    async def pages(self) -> AsyncIterator[list[Entry]]:
        """Yield the wanted files in pages. Raises SourceForbidden, MoveFolderInvalid."""
        rules = Rules(self.server)
        root = encoded(self.server["directory"])
        moved = await folder_below(self.source, self.server)
        waiting: list[tuple[bytes, int]] = [(b"", 0)]
        entered: set[bytes] = set()
        page: list[Entry] = []
        while waiting:
            below, depth = waiting.pop()
            where = root + b"/" + below if below else root
            try:
                if self.server["follows_links"] and not await self._enter(where, entered):
                    continue
                self.folders += 1
                async for name, found in entries_of(self.source, where, shown_name(below or root)):
                    path = below + b"/" + name if below else name
                    attributes = await self._resolved(root, path, found)
                    if attributes.type == asyncssh.FILEXFER_TYPE_DIRECTORY:
                        if depth < self.server["max_depth"] and path != moved:
                            waiting.append((path, depth + 1))
                    elif attributes.type == asyncssh.FILEXFER_TYPE_REGULAR:
                        done_for = rules.done_for(path)
                        if done_for is not None or rules.is_wanted(path):
                            page.append(Entry(path, *size_and_mtime(attributes), done_for))
                            self.files += done_for is None
                    if len(page) >= 2 * PAGE_FILES or (page and not crc32(name) % PAGE_FILES):
                        yield page
                        page = []
            except RemoteFileError as failure:
                if below:
                    self._problem(failure.message)
                    continue
                why = "does not exist" if isinstance(failure, FileVanished) else "may not be read"
                raise SourceForbidden(
                    f"the folder {self.server['directory']} of {self.server['name']} {why}",
                    hint="list it: postroad intake servers browse NAME",
                ) from failure
        if page:
            yield page

    async def _enter(self, where: bytes, entered: set[bytes]) -> bool:
        async with answering(shown_name(where), self.source):
            real = await self.source.sftp.realpath(where)
        if real in entered:
            return False
        entered.add(real)
        return True

    async def _resolved(self, root: bytes, path: bytes, found: SFTPAttrs) -> SFTPAttrs:
        is_link = found.type == asyncssh.FILEXFER_TYPE_SYMLINK
        if is_link and not self.server["follows_links"]:
            self.links_passed_over += 1
        elif is_link or found.type == asyncssh.FILEXFER_TYPE_UNKNOWN:
            try:
                async with answering(shown_name(path), self.source):
                    return await self.source.sftp.stat(root + b"/" + path)
            except RemoteFileError as failure:
                self._problem(f"the link {shown_name(path)} leads nowhere: {failure.message}")
        return found

    def _problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)


def digest_of(page: list[Entry]) -> bytes:
    """Return a digest of everything that is recorded about the files of a page."""
    rows = (b"%b\0%d\0%d\0%b\0" % (e.path, e.size, e.mtime, e.done_for or b"") for e in page)
    return blake2b(b"".join(rows), digest_size=16).digest()


async def entries_of(
    source: Source, folder: bytes, shown: str
) -> AsyncIterator[tuple[bytes, SFTPAttrs]]:
    """Yield the entries of a folder; the timeout applies to each response."""
    entries = source.sftp.scandir(folder)
    is_more = True
    while is_more:
        piece: list[asyncssh.SFTPName] = []
        async with answering(shown, source):
            async for found in entries:
                piece.append(found)
                if len(piece) == PIECE_ENTRIES:
                    break
            else:
                is_more = False
        for found in piece:
            # Given a path in bytes, the library returns names in bytes.
            name = cast("bytes", found.filename)
            if name not in (b".", b".."):
                yield name, found.attrs
