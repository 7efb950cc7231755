"""Secrets at rest: encrypted with Fernet; the newest key encrypts, every key decrypts.

```
key file     one key per line, newest first; created with mode 0600 by `create_key_file`
environment  POSTROAD_VAULT__KEYS, comma-separated keys, instead of the file
rotation     put a new key first -> `rotate` every sealed value -> remove the old key
```

Running processes read a changed key file again, so a rotation needs no restart. A sealed value
starts with `sealed:`; any other value is rejected when it is opened, so that a plaintext secret is
detected on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from postroad.durable import create_file, replace_file
from postroad.errors import PostroadError
from postroad.settings.server import VaultSettings

MARK = "sealed:"


class VaultError(PostroadError, code="vault"):
    """A secret cannot be sealed or opened."""


class KeyMissing(VaultError, kind="unavailable"):
    """The vault has no key, or an invalid one."""


class SealBroken(VaultError, kind="refused"):
    """No key can decrypt this value: it was sealed with another key, or changed."""


def new_key() -> str:
    """Return a fresh key."""
    return Fernet.generate_key().decode()


def create_key_file(path: Path) -> Path:
    """Write a fresh key to a file that only its owner reads; an existing one is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    create_file(path, f"{new_key()}\n")
    return path


def add_key(path: Path) -> None:
    """Put a fresh key first in a key file. A crash leaves the old file or the new one."""
    text = f"{new_key()}\n{_read(path)}"
    _fernet(text.splitlines())
    replace_file(path, text, 0o600)


def open_vault(settings: VaultSettings, make_folder: Callable[[], Path]) -> Vault:
    """Return the vault with the configured keys, else with the key file of the data folder."""
    if settings.keys is not None:
        return Vault(settings.keys.get_secret_value().split(","))
    return Vault.from_file(settings.key_file or create_key_file(make_folder() / "vault.key"))


class Vault:
    """Seals and opens secrets with one or more keys."""

    def __init__(self, keys: Iterable[str], path: Path | None = None) -> None:
        self._path = path
        self._keys = list(keys)
        self._fernet = _fernet(self._keys)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read the keys of a file, newest first; the file is read again when it changes."""
        return cls(_read(path).splitlines(), path)

    def seal(self, secret: str) -> str:
        """Return the secret, encrypted with the newest key."""
        self._reload()
        return MARK + self._fernet.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str:
        """Return the secret of a sealed value. Raises SealBroken when no key decrypts it."""
        return self._with_newest_keys(MultiFernet.decrypt, sealed)

    def rotate(self, sealed: str) -> str:
        """Encrypt a value again with the newest key; its secret stays the same."""
        return MARK + self._with_newest_keys(MultiFernet.rotate, sealed)

    def _with_newest_keys(self, use: Callable[[MultiFernet, bytes], bytes], sealed: str) -> str:
        if not sealed.startswith(MARK):
            raise SealBroken("the value is not sealed", hint="enter the secret again")
        token = sealed.removeprefix(MARK).encode()
        while True:
            try:
                return use(self._fernet, token).decode()
            except InvalidToken:
                # Another process may have rotated the keys since this one read them.
                if not self._reload():
                    raise SealBroken(
                        "no key of the vault opens this secret",
                        hint="restore the key that sealed it, or enter the secret again",
                    ) from None

    def _reload(self) -> bool:
        """Read the key file again; returns whether it has changed."""
        if self._path is None or (keys := _read(self._path).splitlines()) == self._keys:
            return False
        self._fernet, self._keys = _fernet(keys), keys
        return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "not a key file"
        raise KeyMissing(f"cannot read the key file {path}: {reason}") from failure


def _fernet(keys: Iterable[str]) -> MultiFernet:
    listed = [key.strip() for key in keys if key.strip()]
    if not listed:
        raise KeyMissing("the vault has no key", hint="create one: postroad intake key create")
    try:
        return MultiFernet([Fernet(key) for key in listed])
    except ValueError:
        # The library's message would repeat the key.
        raise KeyMissing(
            "a key of the vault is invalid",
            hint="a key is 32 random bytes in URL-safe base64: postroad intake key create",
        ) from None
