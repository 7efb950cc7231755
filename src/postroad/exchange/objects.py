"""The objects of an S3-compatible store, in place of the folders of a root.

Content is written once, under a name that no other content ever gets, before its row is committed.
The row names the object, and the folder is a column of the row only: a move is the transaction of
the journal and nothing else. So a server that was suspended can do no harm: it can neither replace
content nor remove what a newer row names.

```
<prefix>/.root.json                                     the root's name; who uses it
<prefix>/<database>/object-<generation>.<token>.<n>     content
<prefix>/<database>/unlisted/…                          put aside by `postroad exchange check --fix`
```

Errors of the store are raised as OSError, as those of a disk are.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, cast

from botocore.exceptions import BotoCoreError, ClientError

from postroad.errors import first_line
from postroad.exchange.errors import RootForeign, StorageFailed, storage_failure
from postroad.exchange.files import OBJECT_PREFIX, Storage
from postroad.s3 import is_full, new_client, new_signed_put, reason_of, split_address
from postroad.settings.exchange import ExchangeSettings

MARKER = ".root.json"
READ_TIMEOUT_SECONDS = 20.0
# A marker that is younger than this shows that servers run.
IN_USE_SECONDS = 60.0
MISSING = 404


@dataclass(frozen=True, slots=True)
class Marker:
    """Which journal uses the root, and since when; `run` is new when its first server starts."""

    root: uuid.UUID
    served_seconds: float
    # None: written by hand.
    run: str | None
    # After a restore, the time before which no object is collected.
    collect_after: float
    age_seconds: float = 0.0

    def is_ahead(self, served_seconds: float, runs: Sequence[str]) -> bool:
        """Return whether it was written by a journal other than the one with these facts.

        That is a copy of the journal, or the journal before it was restored.
        """
        return self.served_seconds > served_seconds or self.run not in (None, *runs)


class ObjectStorage(Storage):
    """The objects below one prefix of a bucket."""

    temporary_prefix = OBJECT_PREFIX
    read_share, readers = 2, 16
    max_write_share = 4

    def __init__(self, address: str, settings: ExchangeSettings, owner: str | None = None) -> None:
        self.objects = self
        self.address = address.rstrip("/")
        self.owner = owner or uuid.uuid4().hex
        self.is_full = False
        self.stores = (self,)
        self.bucket, self._prefix = split_address(address)
        self._client = new_client(settings, settings.file_threads, READ_TIMEOUT_SECONDS)
        self._fast = new_signed_put(settings, settings.file_threads, READ_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Close the connections."""
        if self._fast is not None:
            self._fast.close()
        self._client.close()

    @contextlib.contextmanager
    def session(self) -> Iterator[Storage]:
        """Yield this storage: its connections are pooled anyway."""
        yield self

    @contextlib.contextmanager
    def folder(self, database: str, folder: str) -> Iterator[int]:
        """Open nothing: only rows name folders."""
        yield -1

    def make_database(self, database: str) -> None:
        """Do nothing: a database has no folders."""

    def write(self, database: str, folder: str, name: str, content: bytes) -> None:
        """Store an object."""
        key, sha256 = self._key(database, name), hashlib.sha256(content).hexdigest()
        path = f"/{self.bucket}/{key}"
        if self._fast is None or self._fast.put_part(path, content, sha256) is None:
            self._request("put_object", Key=key, Body=content)

    @contextlib.contextmanager
    def writer(self, database: str, folder: str, name: str) -> Iterator[int]:
        """Yield a local file to write to, then store its content, in parts if it is large."""
        with tempfile.TemporaryFile() as file:
            yield file.fileno()
            file.seek(0)
            with self._as_os_errors():
                self._client.upload_fileobj(file, self.bucket, self._key(database, name))

    def open_file(self, database: str, folder: str, name: str) -> BinaryIO:
        """Open an object for reading, over the network."""
        answer = self._request("get_object", Key=self._key(database, name))
        return cast("BinaryIO", _Body(answer["Body"], self._as_os_errors))

    def load(self, database: str, folder: str, name: str, size: int) -> tuple[int, bytes]:
        """Return the size of an object, and its bytes if the size is the given one."""
        if size < 0:
            answer = self._request("head_object", Key=self._key(database, name))
            return answer["ContentLength"], b""
        with self._as_os_errors():
            answer = self._request("get_object", Key=self._key(database, name))
            with contextlib.closing(answer["Body"]) as body:
                found = answer["ContentLength"]
                return found, body.read() if found == size else b""

    def exists(self, database: str, folder: str, name: str) -> bool:
        """Check whether there is such an object."""
        with contextlib.suppress(FileNotFoundError):
            self._request("head_object", Key=self._key(database, name))
            return True
        return False

    def unlink(self, database: str, folder: str, name: str) -> None:
        """Remove an object, if it exists."""
        self._request("delete_object", Key=self._key(database, name))

    def put_aside(self, database: str, folder: str, name: str) -> None:
        """Move an object that no row refers to to a place where it is not removed."""
        source = self._key(database, name)
        kept = self._key(database, f"unlisted/{name}")
        copied = {"Bucket": self.bucket, "Key": source}
        with self._as_os_errors():
            self._client.copy(copied, self.bucket, kept)
        self._request("delete_object", Key=source)

    def pages(self, database: str) -> Iterator[list[tuple[str, datetime]]]:
        """Yield the names of the objects of a database, and when they were written."""
        prefix = self._key(database, OBJECT_PREFIX)
        begin = len(prefix) - len(OBJECT_PREFIX)
        for page in self._list(Prefix=prefix):
            yield [(one["Key"][begin:], one["LastModified"]) for one in page.get("Contents", ())]

    def databases(self) -> list[str]:
        """Return the databases that have objects."""
        return sorted(
            one["Prefix"].removeprefix(self._prefix).rstrip("/")
            for page in self._list(Prefix=self._prefix, Delimiter="/")
            for one in page.get("CommonPrefixes", ())
        )

    def open_root(self, allows_network: bool = False) -> uuid.UUID:
        """Return the name of the root, or a new one. Raises StorageFailed."""
        try:
            found = self.root_name()
        except OSError as failure:
            raise StorageFailed(
                f"the store {self.address} cannot be used: {failure.strerror}",
                hint="create the bucket, or correct exchange.root and the settings exchange.s3_…",
            ) from failure
        self.is_new = found is None
        return found or uuid.uuid4()

    def root_name(self) -> uuid.UUID | None:
        """Return the name in the marker, None if there is no marker."""
        found = self._marker()
        return found.root if found else None

    def is_in_use(self) -> bool:
        """Return whether servers have written the marker lately."""
        found = self._marker()
        return found is not None and found.age_seconds < IN_USE_SECONDS

    def is_alone(self, served_seconds: float, runs: Sequence[str]) -> bool:
        """Return whether no other journal, such as a copy of this one, uses the store."""
        try:
            found = self._marker()
        except OSError as failure:
            raise storage_failure(failure, "the marker cannot be read") from failure
        if found is None or found.age_seconds >= IN_USE_SECONDS:
            return True
        return not found.is_ahead(served_seconds, runs)

    def claim(
        self, root_id: uuid.UUID, served_seconds: float, runs: Sequence[str], age: timedelta
    ) -> bool:
        """Write the marker of a new run; return whether the journal is older than the last marker.

        If it is older, it was restored from a backup, and all objects are kept for `age` from now
        on.
        """
        found = self._marker()
        is_restored = found is not None and found.is_ahead(served_seconds, runs)
        collect_after = found.collect_after if found else 0.0
        if is_restored:
            collect_after = time.time() + age.total_seconds()
        self._put_marker(found, Marker(root_id, served_seconds, runs[0], collect_after))
        return is_restored

    def mark(self, root_id: uuid.UUID, served_seconds: float, run: str | None) -> float:
        """Write the marker again; return the time from which objects may be collected.

        Raises RootForeign, if another journal has written it.
        """
        found = self._marker()
        if found is not None and (found.root != root_id or found.run not in (None, run)):
            raise self._is_foreign()
        collect_after = found.collect_after if found else 0.0
        self._put_marker(found, Marker(root_id, served_seconds, run, collect_after))
        return collect_after

    def is_marked_by(self, run: str | None) -> bool:
        """Return whether the marker is that of a run."""
        found = self._marker()
        return found is not None and found.run == run

    def _put_marker(self, found: Marker | None, marker: Marker) -> None:
        """Write the marker that follows the one that was found."""
        fields = asdict(marker) | {"root": str(marker.root)}
        del fields["age_seconds"]
        condition = {} if found else {"IfNoneMatch": "*"}
        text = json.dumps(fields).encode()
        self._request("put_object", Key=self._prefix + MARKER, Body=text, **condition)
        # A store that ignores the condition may also have stored the marker of another journal.
        if not found and not self.is_marked_by(marker.run):
            raise self._is_foreign()

    def _is_foreign(self) -> RootForeign:
        return RootForeign(
            f"servers of another journal use {self.address}",
            hint="use a separate bucket or prefix for each journal",
        )

    def _marker(self) -> Marker | None:
        """Return what the marker holds. Raises RootForeign, if it cannot be read."""
        try:
            answer = self._request("get_object", Key=self._prefix + MARKER)
        except FileNotFoundError:
            return None
        with self._as_os_errors(), contextlib.closing(answer["Body"]) as body:
            text = body.read()
        # Only the clock of the store is used.
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        age = (now - answer["LastModified"]).total_seconds()
        try:
            found = json.loads(text)
            return Marker(
                uuid.UUID(found["root"]),
                float(found.get("served_seconds", 0)),
                found.get("run"),
                float(found.get("collect_after", 0)),
                age,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            raise RootForeign(
                f"{self.address}/{MARKER} cannot be read",
                hint='write {"root": "…"} there, with exchange.server.root_id of the journal',
            ) from failure

    def _key(self, database: str, name: str) -> str:
        return f"{self._prefix}{database}/{name}"

    def _list(self, **more: str) -> Iterator[Any]:
        with self._as_os_errors():
            pages = self._client.get_paginator("list_objects_v2")
            yield from pages.paginate(Bucket=self.bucket, **more)

    def _request(self, method: str, **more: Any) -> Any:
        """Send a request. Raises FileNotFoundError, if the bucket is there and the key is not."""
        with self._as_os_errors():
            try:
                return getattr(self._client, method)(Bucket=self.bucket, **more)
            except ClientError as failure:
                code, status, _ = reason_of(failure)
                if code == "NoSuchBucket" or (method == "head_bucket" and status == MISSING):
                    raise OSError(errno.EIO, f"there is no bucket {self.bucket}") from failure
                if status != MISSING:
                    raise
        # The answer to HEAD is the same for a missing key and for a missing bucket.
        self._request("head_bucket")
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), more.get("Key"))

    @contextlib.contextmanager
    def _as_os_errors(self) -> Iterator[None]:
        try:
            yield
        except ClientError as failure:
            reason = reason_of(failure)
            number = errno.ENOSPC if is_full(*reason) else errno.EIO
            raise OSError(number, f"{self.address}: {reason[2]}") from failure
        except BotoCoreError as failure:
            raise OSError(errno.EIO, f"{self.address}: {first_line(failure)}") from failure


class _Body(io.RawIOBase):
    """The content of an object while it arrives."""

    def __init__(self, body: Any, as_os_errors: Callable[[], Any]) -> None:
        self._body = body
        self._as_os_errors = as_os_errors

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes."""
        with self._as_os_errors():
            chunk = self._body.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        """Close the connection, unless everything was read."""
        self._body.close()
        super().close()
