"""A folder and an object store at the same time, while files are copied from one to the other.

Each row names the store of its content: an object, or a file in a folder. So does each name, since
only those of objects begin with `object-`. New content goes to the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroad.exchange.errors import RootForeign
from postroad.exchange.files import OBJECT_PREFIX, Storage
from postroad.exchange.objects import ObjectStorage


def _by_name(method: str) -> Any:
    """Return a method for the object store if the name is an object's, else for the folders."""

    def call(self: TwoStores, database: str, folder: str, name: str, *more: Any) -> Any:
        is_object = name.startswith(OBJECT_PREFIX)
        storage: Any = self.objects if is_object else super(TwoStores, self)
        return getattr(storage, method)(database, folder, name, *more)

    return call


class TwoStores(Storage):
    """The root, to which new content is written, and the second store, which is read, too."""

    write, writer, open_file = _by_name("write"), _by_name("writer"), _by_name("open_file")
    load, exists, unlink = _by_name("load"), _by_name("exists"), _by_name("unlink")
    put_aside = _by_name("put_aside")
    read_share, readers = ObjectStorage.read_share, ObjectStorage.readers

    def __init__(self, root: Storage, second: Storage) -> None:
        folders, objects = (second, root.objects) if root.objects else (root, second.objects)
        if objects is None or folders.objects:
            raise RootForeign(
                f"{root.address} and {second.address} are stores of the same kind",
                hint="a migration goes from a folder to an object store, or back",
            )
        super().__init__(folders.root)
        self.objects = objects
        self.address = root.address
        self.stores = (root, second)
        self.max_write_share, self.temporary_prefix = root.max_write_share, root.temporary_prefix

    def is_alone(self, served_seconds: float, runs: Sequence[str]) -> bool:
        """Return whether no other journal uses one of the stores."""
        return all(store.is_alone(served_seconds, runs) for store in self.stores)

    def close(self) -> None:
        """Close both stores."""
        for store in self.stores:
            store.close()
