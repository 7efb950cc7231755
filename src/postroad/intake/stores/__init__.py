"""Stores of imported files: a folder, or any S3-compatible store.

A part is durable when `put_part` returns, so a transfer can be resumed after the last one. An
object appears under its key completely or not at all.

```
put                                             a small object
begin ──> put_part, … ──> complete              a large one
parts, open_uploads, abort                      recovery
size, read_range                                check it and read it back
```

Every call can raise StoreUnavailable, StoreFull or StoreRefused; calls of an upload also
UploadLost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Union
from urllib.parse import urlsplit

from postroad.errors import ConfigurationError
from postroad.intake.stores.folder import FolderStore
from postroad.intake.stores.part import Part
from postroad.settings.intake import IntakeSettings

if TYPE_CHECKING:
    from postroad.intake.stores.s3 import S3Store

__all__ = ["Part", "Store", "open_store"]

# S3Store is imported only when it is used, because importing boto3 takes long.
Store = Union[FolderStore, "S3Store"]


def open_store(address: str, settings: IntakeSettings) -> Store:
    """Open the store of an address: `s3://bucket/prefix` or a folder (`file:///path`, `/path`)."""
    found = urlsplit(address)
    if found.scheme == "s3" and found.netloc:
        from postroad.intake.stores.s3 import S3Store

        return S3Store(address, settings)
    if found.scheme in ("", "file") and found.path.startswith("/"):
        return FolderStore(Path(found.path))
    raise ConfigurationError(
        f"a store is a folder or s3://bucket, not {found.scheme or address}",
        hint="for example POSTROAD_INTAKE__STORE=s3://incoming or /srv/incoming",
    )
