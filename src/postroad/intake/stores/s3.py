"""Any S3-compatible store, by multipart uploads whose id and parts are kept in the journal.

Some stores reject a part that they already have, so the parts are listed before resuming.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from postroad.errors import first_line
from postroad.intake import errors
from postroad.intake.stores.part import Data, OpenUpload, Part
from postroad.s3 import is_full, new_client, new_signed_put, reason_of, split_address
from postroad.settings.intake import IntakeSettings

T = TypeVar("T")

READ_TIMEOUT_SECONDS = 60
UPLOAD_LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "NotImplemented"}
KEY_REFUSED = {
    "KeyTooLongError", "XMinioInvalidObjectName", "XMinioParentIsObject",
    "XMinioObjectExistsAsDirectory",
}  # fmt: skip
REFUSED = {
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket",
    "InvalidBucketName", "AllAccessDisabled",
}  # fmt: skip
SERVER_FAULT = 500
MISSING = 404


class S3Store:
    """Objects of one bucket, below a prefix."""

    def __init__(self, address: str, settings: IntakeSettings) -> None:
        self.bucket, self._prefix = split_address(address)
        self.name = f"s3://{self.bucket}/{self._prefix}".rstrip("/")
        self._threads = ThreadPoolExecutor(settings.uploads, thread_name_prefix="store")
        # Untyped, because `_request` calls its methods by name.
        self._client: Any = new_client(settings, settings.uploads + 2, READ_TIMEOUT_SECONDS)
        self._fast = new_signed_put(settings, settings.uploads)

    async def put(self, key: str, data: Data, sha256: str) -> None:
        """Store a small object by one request."""
        if self._fast is None or await self._fast.put(self._path(key), data, sha256) is None:
            await self._request("put_object", key, Body=bytes(data))

    async def begin(self, key: str) -> str:
        """Begin a multipart upload."""
        return str((await self._request("create_multipart_upload", key))["UploadId"])

    async def put_part(
        self, key: str, upload_id: str, number: int, offset: int, data: Data, sha256: bytes
    ) -> str:
        """Upload one part."""
        if self._fast is not None:
            query = {"partNumber": str(number), "uploadId": upload_id}
            put = partial(self._fast.put_part, self._path(key), data, sha256.hex(), **query)
            if etag := await self._call(put):
                return etag
        part = {"UploadId": upload_id, "PartNumber": number, "Body": bytes(data)}
        return str((await self._request("upload_part", key, **part))["ETag"])

    async def parts(self, key: str, upload_id: str) -> list[Part]:
        """List the parts that the store has."""
        found = await self._list("list_parts", "Parts", Key=self._prefix + key, UploadId=upload_id)
        return [Part(part["PartNumber"], part["Size"], part["ETag"]) for part in found]

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """Combine the parts into the object."""
        listed = {"Parts": [{"PartNumber": part.number, "ETag": part.etag} for part in parts]}
        upload = {"UploadId": upload_id, "MultipartUpload": listed}
        await self._request("complete_multipart_upload", key, **upload)

    async def abort(self, key: str, upload_id: str) -> None:
        """Abort the multipart upload."""
        with contextlib.suppress(errors.UploadLost):
            await self._request("abort_multipart_upload", key, UploadId=upload_id)

    async def size(self, key: str) -> int | None:
        """Return the size of an object, None when there is none."""

        def head() -> int | None:
            try:
                found = self._client.head_object(Bucket=self.bucket, Key=self._prefix + key)
            except ClientError as failure:
                if reason_of(failure)[1] == MISSING:
                    return None
                raise
            return int(found["ContentLength"])

        return await self._call(head)

    async def read_range(self, key: str, offset: int, size: int) -> bytes:
        """Read a range; shorter at the end of the object."""
        wanted = f"bytes={offset}-{offset + size - 1}"
        body = (await self._request("get_object", key, Range=wanted))["Body"]
        with contextlib.closing(body):
            return await self._call(lambda: bytes(body.read()))

    async def open_uploads(self) -> list[OpenUpload]:
        """List the multipart uploads below the prefix."""
        found = await self._list("list_multipart_uploads", "Uploads", Prefix=self._prefix)
        fields = [(one["Key"], one["UploadId"], one["Initiated"]) for one in found]
        return [OpenUpload(key.removeprefix(self._prefix), *more) for key, *more in fields]

    async def close(self) -> None:
        """Close connections and end threads."""
        if self._fast is not None:
            self._fast.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _path(self, key: str) -> str:
        return f"/{self.bucket}/{self._prefix}{key}"

    async def _request(self, method: str, key: str, **more: Any) -> Any:
        more |= {"Bucket": self.bucket, "Key": self._prefix + key}
        return await self._call(partial(getattr(self._client, method), **more))

    async def _list(self, method: str, name: str, **more: Any) -> list[Any]:
        def read() -> list[Any]:
            pages = self._client.get_paginator(method).paginate(Bucket=self.bucket, **more)
            return [one for page in pages for one in page.get(name, [])]

        return await self._call(read)

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except ClientError as failure:
            raise self._named(failure) from None
        except (BotoCoreError, OSError) as failure:
            text = f"the store {self.name} does not answer: {first_line(failure)}"
            raise errors.StoreUnavailable(text) from None

    def _named(self, failure: ClientError) -> Exception:
        code, status, text = reason_of(failure)
        kind: type[errors.StoreError] = errors.StoreUnavailable
        what, hint = "fails", None
        if code in UPLOAD_LOST:
            kind, what = errors.UploadLost, "cannot continue the upload"
        elif code in KEY_REFUSED:
            kind, what = errors.KeyRefused, "cannot keep this key"
            hint = "remove what is in its place in the store, or rename the file; then retry it"
        elif code == "BadDigest":
            kind, what = errors.ObjectDiffers, "received other bytes"
        elif is_full(code, status, text):
            kind, what = errors.StoreFull, "is full"
        elif code in REFUSED or (code in {"403", "404"} and status < SERVER_FAULT):
            kind, what = errors.StoreRefused, "rejects the request"
            hint = "check bucket, access key and secret key"
        return kind(f"the store {self.name} {what}: {text}", hint=hint)
