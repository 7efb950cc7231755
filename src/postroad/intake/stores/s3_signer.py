"""Signs PUTs as S3 wants them (Signature Version 4), for the calls that go without boto3."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit

__all__ = ["Signed", "Signer"]

_SIGNED = "host;x-amz-content-sha256;x-amz-date"


@lru_cache(maxsize=8)
def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


@dataclass(frozen=True, slots=True)
class Signed:
    """A request line's target and the headers that go with it."""

    target: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Signer:
    """The endpoint and the keys."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    region: str

    def put(self, path: str, query: dict[str, str], sha256: str) -> Signed:
        """Sign the PUT of a body with this digest."""
        target = quote(path, safe="/~")
        asked = urlencode(sorted(query.items()), quote_via=quote)
        host = urlsplit(self.endpoint).netloc
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{moment[:8]}/{self.region}/s3/aws4_request"
        request = (
            f"PUT\n{target}\n{asked}\nhost:{host}\nx-amz-content-sha256:{sha256}\n"
            f"x-amz-date:{moment}\n\n{_SIGNED}\n{sha256}"
        )
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
        key = _signing_key(self.secret_key, moment[:8], self.region)
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        return Signed(
            f"{target}?{asked}" if asked else target,
            {
                "Host": host,
                "x-amz-content-sha256": sha256,
                "x-amz-date": moment,
                "Content-Type": "application/octet-stream",
                "Authorization": f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
                f"SignedHeaders={_SIGNED}, Signature={signature}",
            },
        )
