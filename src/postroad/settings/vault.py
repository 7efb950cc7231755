"""Settings of the vault, which keeps secrets sealed in the database."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from postroad.settings.values import Section

__all__ = ["VaultSettings"]


class VaultSettings(Section):
    """The keys that seal the secrets of partners."""

    key_file: Path | None = None
    """File of keys, one a line, the newest first. Default: `vault.key` in the data folder."""

    keys: SecretStr | None = None
    """The keys themselves, parted by commas, instead of the file. Default: the file."""
