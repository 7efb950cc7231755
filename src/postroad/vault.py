"""Secrets at rest: sealed with Fernet, the newest key seals, all keys open.

```
key file     one key a line, the newest first; made with mode 0600 by `create_key_file`
environment  POSTROAD_VAULT__KEYS, keys parted by commas, instead of the file
rotation     put a new key first -> `rotate` every sealed value -> take the old key out
```

A sealed value is text that begins with `sealed:`; a value that is not sealed is refused when it is
opened, so that a secret in the clear is found by the first use.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from postroad.errors import PostroadError

__all__ = ["KeyMissing", "SealBroken", "Vault", "VaultError", "create_key_file", "new_key"]

MARK = "sealed:"
KEY_FILE_MODE = 0o600


class VaultError(PostroadError):
    """A secret cannot be sealed or opened."""

    code = "vault"


class KeyMissing(VaultError):
    """There is no key, or it is not one."""

    code = "vault_key_missing"
    kind = "unavailable"


class SealBroken(VaultError):
    """No key opens this value: it was sealed with another one, or changed."""

    code = "vault_seal_broken"
    kind = "refused"


def new_key() -> str:
    """Return a fresh key."""
    return Fernet.generate_key().decode()


def create_key_file(path: Path) -> Path:
    """Write a fresh key to a file that only its owner reads; one that is there stays as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(new_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path


class Vault:
    """Seals and opens secrets with one or more keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        listed = [key.strip() for key in keys if key.strip()]
        if not listed:
            raise KeyMissing("the vault has no key", hint="create one: postroad intake key create")
        try:
            self._fernet = MultiFernet([Fernet(key) for key in listed])
        except ValueError:
            # The message of the library would repeat the key.
            raise KeyMissing(
                "a key of the vault is not one",
                hint="a key is 32 random bytes in URL-safe base64: postroad intake key create",
            ) from None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read the keys of a file, the newest first."""
        try:
            return cls(path.read_text(encoding="ascii").splitlines())
        except (OSError, UnicodeDecodeError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else "not a key file"
            raise KeyMissing(f"cannot read the key file {path}: {reason}") from failure

    def seal(self, secret: str) -> str:
        """Return the secret, sealed with the newest key."""
        return MARK + self._fernet.encrypt(secret.encode()).decode()

    def open(self, sealed: str) -> str:
        """Return the secret of a sealed value."""
        with _broken_seals():
            return self._fernet.decrypt(self._token(sealed)).decode()

    def rotate(self, sealed: str) -> str:
        """Seal a value anew with the newest key; its secret stays as it is."""
        with _broken_seals():
            return MARK + self._fernet.rotate(self._token(sealed)).decode()

    @staticmethod
    def _token(sealed: str) -> bytes:
        if not sealed.startswith(MARK):
            raise SealBroken("the value is not sealed", hint="enter the secret again")
        return sealed.removeprefix(MARK).encode()


@contextlib.contextmanager
def _broken_seals() -> Iterator[None]:
    try:
        yield
    except InvalidToken:
        raise SealBroken(
            "no key of the vault opens this secret",
            hint="bring the key back with which it was sealed, or enter the secret again",
        ) from None
