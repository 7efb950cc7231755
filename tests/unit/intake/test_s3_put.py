from __future__ import annotations

import datetime as time
from unittest import mock

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from postroad.s3 import put as s3_put
from postroad.s3.put import SignedPut

MOMENT = time.datetime(2026, 11, 15, 12, 0, 0, tzinfo=time.UTC)


def test_a_signature_is_the_one_that_the_client_library_makes() -> None:
    fast = SignedPut("http://127.0.0.1:9000", "AKID", "SECRET", "eu-central-1", 1)
    with mock.patch.object(s3_put, "datetime") as clock:
        clock.now.return_value = MOMENT
        query = {"uploadId": "x/y=", "partNumber": "3"}
        target, headers = fast._signed("/bucket/a b/caf\u00e9~2", "ab" * 32, **query)
    request = AWSRequest(
        "PUT",
        "http://127.0.0.1:9000" + target,
        headers={"x-amz-content-sha256": "ab" * 32, "X-Amz-Date": "20261115T120000Z"},
    )
    request.context.update(timestamp="20261115T120000Z", payload_signing_enabled=True)
    request.context["client_config"] = mock.Mock(s3={"payload_signing_enabled": True})
    auth = S3SigV4Auth(Credentials("AKID", "SECRET"), "s3", "eu-central-1")
    canonical = auth.canonical_request(request)
    expected = auth.signature(auth.string_to_sign(request, canonical), request)
    assert headers["Authorization"].endswith(f"Signature={expected}")


def test_the_secret_is_not_shown() -> None:
    assert "SECRET" not in repr(SignedPut("http://h", "AKID", "SECRET", "r", 1))
