"""Any S3-compatible store, by multipart uploads whose id and parts are kept in the journal.

Checksums of the client library are sent only where the protocol requires them, because some stores
reject them. Sending a part twice with the same bytes is harmless; some stores reject a part that
they have, so the parts are listed before an upload is resumed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from postroad.intake.errors import (
    KeyRefused,
    ObjectDiffers,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UploadLost,
)
from postroad.intake.stores.s3_put import SignedPut
from postroad.intake.stores.store import OpenUpload, Part, S3Options

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Store"]

T = TypeVar("T")

READ_BYTES = 4 * 1024 * 1024
CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60
UPLOAD_LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "NotImplemented"}
KEY_REFUSED = {
    "KeyTooLongError",
    "XMinioInvalidObjectName",
    "XMinioParentIsObject",
    "XMinioObjectExistsAsDirectory",
}
FULL = {"EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"}
REFUSED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "NoSuchBucket",
    "InvalidBucketName",
    "AllAccessDisabled",
}
SERVER_FAULT = 500
INSUFFICIENT_STORAGE = 507
MISSING = 404


class S3Store:
    """Objects of one bucket, below a prefix."""

    def __init__(self, bucket: str, prefix: str, options: S3Options) -> None:
        self.bucket = bucket
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._threads = ThreadPoolExecutor(options.uploads, thread_name_prefix="store")
        self._client: S3Client = boto3.session.Session().client(
            "s3",
            endpoint_url=options.endpoint,
            aws_access_key_id=options.access_key,
            aws_secret_access_key=options.secret_key,
            region_name=options.region,
            config=Config(
                signature_version="s3v4",
                request_checksum_calculation=options.checksums,  # type: ignore[arg-type]
                response_checksum_validation=options.checksums,  # type: ignore[arg-type]
                s3={"addressing_style": "path" if options.endpoint else "auto"},
                max_pool_connections=options.uploads + 2,
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                read_timeout=READ_TIMEOUT_SECONDS,
                retries={"mode": "standard", "total_max_attempts": 2},
            ),
        )
        self._fast: SignedPut | None = None
        if options.endpoint and options.access_key and options.secret_key:
            endpoint, keys = options.endpoint.rstrip("/"), (options.access_key, options.secret_key)
            self._fast = SignedPut(endpoint, *keys, options.region, options.uploads)

    async def put(self, key: str, data: bytes | bytearray, sha256: str) -> None:
        """Store a small object by one request."""
        if await self._put_fast(key, data, sha256) is None:
            await self._call(
                lambda: self._client.put_object(
                    Bucket=self.bucket, Key=self._prefix + key, Body=bytes(data)
                )
            )

    async def _put_fast(
        self, key: str, data: bytes | bytearray, sha256: str, **query: str
    ) -> str | None:
        if self._fast is None:
            return None
        return await self._fast.put(f"/{self.bucket}/{self._prefix}{key}", data, sha256, **query)

    async def begin(self, key: str) -> str:
        """Begin a multipart upload."""
        answer = await self._call(
            lambda: self._client.create_multipart_upload(Bucket=self.bucket, Key=self._prefix + key)
        )
        return answer["UploadId"]

    async def put_part(
        self, key: str, upload_id: str, number: int, offset: int, data: bytearray, sha256: bytes
    ) -> str:
        """Upload one part."""
        del offset
        query = {"partNumber": str(number), "uploadId": upload_id}
        if etag := await self._put_fast(key, data, sha256.hex(), **query):
            return etag
        answer = await self._call(
            lambda: self._client.upload_part(
                Bucket=self.bucket,
                Key=self._prefix + key,
                UploadId=upload_id,
                PartNumber=number,
                Body=bytes(data),
            )
        )
        return answer["ETag"]

    async def parts(self, key: str, upload_id: str) -> list[Part]:
        """Ask the store which parts it has."""

        def ask() -> list[Part]:
            pages = self._client.get_paginator("list_parts").paginate(
                Bucket=self.bucket, Key=self._prefix + key, UploadId=upload_id
            )
            return [
                Part(part["PartNumber"], part["Size"], part["ETag"])
                for page in pages
                for part in page.get("Parts", [])
            ]

        return await self._call(ask)

    async def complete(self, key: str, upload_id: str, parts: Sequence[Part]) -> None:
        """Make the object."""
        listed: Any = [{"PartNumber": part.number, "ETag": part.etag} for part in parts]
        await self._call(
            lambda: self._client.complete_multipart_upload(
                Bucket=self.bucket,
                Key=self._prefix + key,
                UploadId=upload_id,
                MultipartUpload={"Parts": listed},
            )
        )

    async def abort(self, key: str, upload_id: str) -> None:
        """Abort the multipart upload."""
        with contextlib.suppress(UploadLost):
            await self._call(
                lambda: self._client.abort_multipart_upload(
                    Bucket=self.bucket, Key=self._prefix + key, UploadId=upload_id
                )
            )

    async def size(self, key: str) -> int | None:
        """Ask for the object's head."""

        def ask() -> int | None:
            try:
                head = self._client.head_object(Bucket=self.bucket, Key=self._prefix + key)
            except ClientError as failure:
                if failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == MISSING:
                    return None
                raise
            return head["ContentLength"]

        return await self._call(ask)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Get the object piece by piece."""
        answer = await self._call(
            lambda: self._client.get_object(Bucket=self.bucket, Key=self._prefix + key)
        )
        body = answer["Body"]
        with contextlib.closing(body):
            while piece := await self._call(lambda: body.read(READ_BYTES)):
                yield piece

    async def open_uploads(self) -> list[OpenUpload]:
        """List multipart uploads below the prefix."""

        def ask() -> list[OpenUpload]:
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=self._prefix
            )
            return [
                OpenUpload(one["Key"].removeprefix(self._prefix), one["UploadId"], one["Initiated"])
                for page in pages
                for one in page.get("Uploads", [])
            ]

        return await self._call(ask)

    async def close(self) -> None:
        """End the threads."""
        if self._fast is not None:
            self._fast.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    async def _call(self, call: Callable[[], T]) -> T:
        with self._errors():
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ClientError as failure:
            raise self._named(failure) from None
        except (BotoCoreError, OSError) as failure:
            text = str(failure).splitlines()[0]
            raise StoreUnavailable(f"the store {self.name} does not answer: {text}") from None

    def _named(self, failure: ClientError) -> Exception:
        code = failure.response.get("Error", {}).get("Code", "")
        status = failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = failure.response.get("Error", {}).get("Message", "") or code
        if code in UPLOAD_LOST:
            return UploadLost(f"the store {self.name} cannot go on with the upload: {text}")
        if code in KEY_REFUSED:
            return KeyRefused(
                f"the store {self.name} cannot keep this key: {text}",
                hint="remove what is in its way in the store, or rename the file; then retry it",
            )
        if code == "BadDigest":
            return ObjectDiffers(f"the store {self.name} received other bytes: {text}")
        if code in FULL or status == INSUFFICIENT_STORAGE or "no space left" in text.lower():
            return StoreFull(f"the store {self.name} is full: {text}")
        if code in REFUSED or (code in {"403", "404"} and status < SERVER_FAULT):
            return StoreRefused(
                f"the store {self.name} refuses: {text}",
                hint="check bucket, access key and secret key",
            )
        return StoreUnavailable(f"the store {self.name} fails: {text}")
