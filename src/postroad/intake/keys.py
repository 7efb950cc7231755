"""Object keys: every path of a server becomes a key that every store accepts.

Printable UTF-8 without special characters is kept. Everything else is percent-encoded, with `%`, so
that the mapping is reversible. A leading `.` becomes `%2E`: no key leads out of a folder. A part or
a key that is too long for a file system or for S3 ends in `~` and a digest; the journal contains
the real path of every file and its key.
"""

from __future__ import annotations

import hashlib

from postroad.postgres.calls import Row

# File systems limit names to 255 bytes, S3 limits keys to 1024; the difference is for a version.
MAX_PART_BYTES = 200
MAX_KEY_BYTES = 900
DIGEST_CHARACTERS = 20

_UNSAFE = set('~%\\"<>|?*:\x7f')


def shown_name(path: bytes) -> str:
    """Return a path for display and for a text column: bytes that are not UTF-8 are escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def object_key(prefix: str, path: bytes, version: int) -> str:
    """Return the key of one version of a remote file below a prefix, the server's name."""
    parts = [_part(part) for part in [prefix.encode(), *path.split(b"/")]]
    # `~` is always encoded in a part, so a version cannot be mistaken for a name.
    suffix = f"~{version}" if version > 1 else ""
    key = "/".join(parts)
    if len(key.encode()) > MAX_KEY_BYTES:
        key = f"{parts[0]}/{_digest(path)}"
    return key + suffix


def _part(part: bytes) -> str:
    text = part.decode("utf-8", "surrogateescape")
    safe = (one if one.isprintable() and one not in _UNSAFE else _encode(one) for one in text)
    written = "".join(safe) or "%"
    if written.startswith("."):
        written = "%2E" + written[1:]
    if written.endswith((" ", ".")):
        written = written[:-1] + f"%{ord(written[-1]):02X}"
    if len(written.encode()) > MAX_PART_BYTES:
        kept = written.encode()[: MAX_PART_BYTES - DIGEST_CHARACTERS - 4].decode("utf-8", "ignore")
        # Do not cut an escape sequence.
        kept = kept[: kept.rfind("%")] if "%" in kept[-2:] else kept
        return kept + _digest(part)
    return written


def _digest(path: bytes) -> str:
    return "~" + hashlib.sha256(path).hexdigest()[:DIGEST_CHARACTERS]


def _encode(one: str) -> str:
    return "".join(f"%{byte:02X}" for byte in one.encode("utf-8", "surrogateescape"))


def temporary_name(row: Row) -> str:
    """Return the name of a file in the temporary folder."""
    return f"{row['id']}.dat"
