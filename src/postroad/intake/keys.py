"""Object keys: any path a server can name becomes a key that every store takes, and back.

The bytes of a path are kept where they are printable UTF-8 and harmless, everything else is
percent-encoded, `%` included, so that the mapping can be turned round. A part of a path that is
`.` or `..`, empty, or begins with `.` loses its dot to `%2E`: no store and no folder can be left
by it. A part or a key that would be too long for a file system or for S3 ends in `~` and a digest
instead; the journal keeps the real path of every file beside its key.
"""

from __future__ import annotations

import hashlib

__all__ = ["object_key", "path_of", "shown_name"]

# File systems end at 255 bytes for a name, S3 at 1024 for a key; the rest is room for a version.
PART_BYTES_MOST = 200
KEY_BYTES_MOST = 900
DIGEST_CHARACTERS = 20

_UNSAFE = set('%\\"<>|?*:\x7f')


def shown_name(path: bytes) -> str:
    """Return a path fit for people and for a text column: what is not UTF-8 is escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def object_key(prefix: str, path: bytes, version: int) -> str:
    """Return the key of one version of a remote file below a prefix, the server's name."""
    parts = [_part(part) for part in [prefix.encode(), *path.split(b"/")]]
    # `~` is never left as it is at the end of a part, so a version cannot look like a name.
    suffix = f"~{version}" if version > 1 else ""
    key = "/".join(parts)
    if len(key.encode()) > KEY_BYTES_MOST:
        key = f"{parts[0]}/{_digest(path)}"
    return key + suffix


def path_of(key: str) -> bytes | None:
    """Return the path that a key stands for, without its prefix; None for a shortened one."""
    _, _, rest = key.partition("/")
    parts = []
    for part in rest.split("/"):
        name = part.partition("~")[0]
        if part.startswith("~") and len(part) > DIGEST_CHARACTERS:
            return None
        if "~" in part and len(part.partition("~")[2]) == DIGEST_CHARACTERS:
            return None
        parts.append(_decode(name))
    return b"/".join(parts)


def _part(part: bytes) -> str:
    text = part.decode("utf-8", "surrogateescape")
    written = "".join(
        one if one.isprintable() and one not in _UNSAFE and one != "~" else _encode(one)
        for one in text
    )
    if not written:
        return "%"
    if written.startswith("."):
        written = "%2E" + written[1:]
    if written.endswith((" ", ".")):
        written = written[:-1] + f"%{ord(written[-1]):02X}"
    if len(written.encode()) > PART_BYTES_MOST:
        kept = written.encode()[: PART_BYTES_MOST - DIGEST_CHARACTERS - 4].decode("utf-8", "ignore")
        # Not in the middle of an escape.
        kept = kept[: kept.rfind("%")] if "%" in kept[-2:] else kept
        return kept + _digest(part)
    return written


def _digest(path: bytes) -> str:
    return "~" + hashlib.sha256(path).hexdigest()[:DIGEST_CHARACTERS]


def _encode(one: str) -> str:
    return "".join(f"%{byte:02X}" for byte in one.encode("utf-8", "surrogateescape"))


def _decode(text: str) -> bytes:
    if text == "%":
        return b""
    out = bytearray()
    place = 0
    while place < len(text):
        if text[place] == "%":
            out += bytes.fromhex(text[place + 1 : place + 3])
            place += 3
        else:
            out += text[place].encode()
            place += 1
    return bytes(out)
