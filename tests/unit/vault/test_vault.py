"""Secrets at rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroad.vault import KeyMissing, SealBroken, Vault, create_key_file, new_key


def test_a_sealed_secret_opens_and_does_not_show() -> None:
    vault = Vault([new_key()])
    sealed = vault.seal("geheim")
    assert "geheim" not in sealed
    assert vault.open(sealed) == "geheim"


def test_rotation_keeps_the_secret_and_needs_the_old_key_no_more() -> None:
    old, new = new_key(), new_key()
    sealed = Vault([old]).seal("geheim")
    rotated = Vault([new, old]).rotate(sealed)
    assert Vault([new]).open(rotated) == "geheim"
    with pytest.raises(SealBroken):
        Vault([new]).open(sealed)


@pytest.mark.parametrize("value", ["geheim", "", "sealed:", "sealed:xyz"])
def test_what_is_not_sealed_is_refused(value: str) -> None:
    with pytest.raises(SealBroken):
        Vault([new_key()]).open(value)


@pytest.mark.parametrize("keys", [[], [" "], ["short-and-wrong"]])
def test_a_vault_without_a_proper_key_says_so_without_showing_it(keys: list[str]) -> None:
    with pytest.raises(KeyMissing) as failure:
        Vault(keys)
    assert "short-and-wrong" not in str(failure.value)


def test_a_key_file_is_its_owners_alone_and_is_not_overwritten(tmp_path: Path) -> None:
    path = create_key_file(tmp_path / "keys" / "vault.key")
    assert path.stat().st_mode & 0o777 == 0o600
    sealed = Vault.from_file(path).seal("geheim")
    assert Vault.from_file(create_key_file(path)).open(sealed) == "geheim"


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing, match=r"none\.key"):
        Vault.from_file(tmp_path / "none.key")


def test_a_running_vault_follows_a_rotation_of_its_key_file(tmp_path: Path) -> None:
    path = create_key_file(tmp_path / "vault.key")
    running = Vault.from_file(path)
    fresh = new_key()
    path.write_text(f"{fresh}\n{path.read_text()}")
    sealed_elsewhere = Vault.from_file(path).seal("geheim")
    assert running.open(sealed_elsewhere) == "geheim"
    assert Vault([fresh]).open(running.seal("neu")) == "neu"
