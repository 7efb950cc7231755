"""Credentials of a server: a password, or a private key with passphrase and certificate.

They exist in plain text only inside the process that logs in. In the database they are one sealed
text; no answer, log line or task argument contains them, and their `repr` shows nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import asyncssh

from postroad.intake.errors import CredentialsInvalid
from postroad.vault import Vault


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a login; never shown."""

    password: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    certificate: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.password and not self.private_key:
            hint = "pass --password-file or --key-file"
            raise CredentialsInvalid("credentials need a password or a private key", hint=hint)
        self.client_keys()

    def client_keys(self) -> list[Any]:
        """Return the key for the SSH library. Raises CredentialsInvalid."""
        if not self.private_key:
            return []
        try:
            key = asyncssh.import_private_key(self.private_key, self.passphrase)
            if self.certificate:
                return [(key, asyncssh.import_certificate(self.certificate))]
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):
            # The library's error text may contain a part of the key.
            raise CredentialsInvalid(
                "the private key or certificate cannot be read",
                hint="use a key in OpenSSH or PEM format and its passphrase, if it has one",
            ) from None
        return [key]

    def seal(self, vault: Vault) -> str:
        """Return the sealed credentials, as they are stored."""
        return vault.seal(json.dumps({name: one for name, one in asdict(self).items() if one}))

    @classmethod
    def open(cls, vault: Vault, sealed: str) -> Credentials:
        """Open sealed credentials. Raises SealBroken."""
        stored = json.loads(vault.open(sealed))
        return cls(**{one.name: stored.get(one.name) for one in fields(cls)})
