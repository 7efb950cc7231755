"""Clients of S3-compatible stores, for all components that store files there.

Checksums of the client library are sent only where the protocol requires them, because some stores
reject them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from postroad.s3.put import TIMEOUT_SECONDS, SignedPut
from postroad.settings.server import S3Settings

CONNECT_TIMEOUT_SECONDS = 5
FULL = {"EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"}
INSUFFICIENT_STORAGE = 507


def split_address(address: str) -> tuple[str, str]:
    """Return the bucket and the prefix, which ends with a slash, of `s3://bucket/prefix`."""
    found = urlsplit(address)
    prefix = found.path.strip("/")
    return found.netloc, f"{prefix}/" if prefix else ""


def new_client(settings: S3Settings, connections: int, read_timeout_seconds: float) -> Any:
    """Return a client; untyped, because its requests may be named by text."""
    access_key, secret_key = _keys(settings)
    checksums: Any = settings.s3_checksums
    return boto3.session.Session().client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=settings.s3_region,
        config=Config(
            signature_version="s3v4",
            request_checksum_calculation=checksums,
            response_checksum_validation=checksums,
            s3={"addressing_style": "path" if settings.s3_endpoint else "auto"},
            max_pool_connections=connections,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=read_timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": 2},
        ),
    )


def new_signed_put(
    settings: S3Settings, connections: int, timeout_seconds: float = TIMEOUT_SECONDS
) -> SignedPut | None:
    """Return the fast client that stores objects; None if the client library must be used."""
    access_key, secret_key = _keys(settings)
    if not (settings.s3_endpoint and access_key and secret_key):
        return None
    endpoint = settings.s3_endpoint.rstrip("/")
    keys = access_key, secret_key, settings.s3_region
    return SignedPut(endpoint, *keys, connections, timeout_seconds)


def reason_of(failure: ClientError) -> tuple[str, int, str]:
    """Return the code, the HTTP status and the text of an error answer."""
    error = failure.response.get("Error", {})
    code = error.get("Code", "")
    status = failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code, status, error.get("Message", "") or code


def is_full(code: str, status: int, text: str) -> bool:
    """Return whether an error answer reports that there is no space left."""
    return code in FULL or status == INSUFFICIENT_STORAGE or "no space left" in text.lower()


def _keys(settings: S3Settings) -> tuple[str | None, ...]:
    given = settings.s3_access_key, settings.s3_secret_key
    return tuple(key.get_secret_value() if key else None for key in given)
