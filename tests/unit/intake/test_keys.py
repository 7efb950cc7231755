from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroad.intake.keys import MAX_KEY_BYTES, object_key, shown_name

names = st.binary(min_size=1, max_size=40).filter(lambda name: b"/" not in name)
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)


def _path_of(key: str) -> bytes:
    _, *parts = key.split("/")
    return b"/".join(unquote_to_bytes(part.partition("~")[0]) for part in parts)


@given(paths, st.integers(1, 9))
def test_every_path_becomes_a_safe_key_and_comes_back(path: bytes, version: int) -> None:
    key = object_key("acme", path, version)
    assert key.isprintable()
    assert len(key.encode()) <= 1024
    parts = key.split("/")
    assert all(part and not part.startswith(".") for part in parts)
    assert _path_of(key) == path


@given(paths, paths)
def test_two_paths_never_share_a_key(one: bytes, other: bytes) -> None:
    keys = {object_key("acme", path, version) for path in {one, other} for version in (1, 2)}
    assert len(keys) == 2 * len({one, other})


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (b"report.csv", "acme/report.csv"),
        (b"2026/\xd0\xb8\xd1\x8e\xd0\xbd\xd1\x8c.csv", "acme/2026/\u0438\u044e\u043d\u044c.csv"),
        (b"../../etc/passwd", "acme/%2E%2E/%2E%2E/etc/passwd"),
        (b"caf\xe9.txt", "acme/caf%E9.txt"),
        (b"a\nb\x00c", "acme/a%0Ab%00c"),
        (b"100%~2", "acme/100%25%7E2"),
        (b".hidden", "acme/%2Ehidden"),
    ],
)
def test_known_names_have_known_keys(path: bytes, key: str) -> None:
    assert object_key("acme", path, 1) == key
    assert _path_of(key) == path


def test_a_later_version_has_a_key_of_its_own() -> None:
    assert object_key("acme", b"a.csv", 2) == "acme/a.csv~2"


def test_very_long_names_end_in_a_digest() -> None:
    long = object_key("acme", b"x" * 255, 1)
    assert len(long.rpartition("/")[2]) <= 255
    assert "~" in long
    deep = object_key("acme", b"/".join([b"d" * 200] * 20), 1)
    assert len(deep.encode()) <= MAX_KEY_BYTES
    assert deep != object_key("acme", b"/".join([b"d" * 200] * 21), 1)


def test_shown_names_are_printable() -> None:
    assert shown_name(b"a\nb\xff\xd1\x8e") == "a\\nb\\xff\u044e"
