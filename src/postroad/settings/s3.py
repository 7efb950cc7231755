"""Settings of an S3-compatible store, shared by the components that keep files in one."""

from __future__ import annotations

from typing import Literal

from postroad.settings.values import Secret, Section


class S3Settings(Section):
    """How an S3-compatible store is reached."""

    s3_endpoint: str | None = None
    """Address of the S3-compatible store, such as `http://127.0.0.1:9000`. Default: Amazon's."""
    s3_access_key: Secret | None = None
    """Access key of the store, or `file:/path` of one. Default: as the AWS tools find it."""
    s3_secret_key: Secret | None = None
    """Secret key of the store, or `file:/path` of one. Default: as the AWS tools find it."""
    s3_region: str = "us-east-1"
    """Region of the store. Default us-east-1."""
    s3_checksums: Literal["when_required", "when_supported"] = "when_required"
    """Whether the client library adds checksums that some stores refuse. Default when_required."""
