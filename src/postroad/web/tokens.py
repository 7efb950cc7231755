"""Bearer tokens: random, stored as a hash, compared in constant time.

A token is 256 random bits, so a plain SHA-256 is as safe as a slow hash, and fast.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING

from postroad.web.errors import TokenMissing

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

TOKEN_BYTES = 32


def new_token(prefix: str = "pr") -> str:
    """Return a fresh token; the prefix lets secret scanners find one that leaked."""
    return f"{prefix}_{secrets.token_urlsafe(TOKEN_BYTES)}"


def hash_token(token: str) -> str:
    """Return the hash that is stored instead of the token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_token_of(token: str, stored_hash: str) -> bool:
    """Compare a token with a stored hash, in constant time."""
    return hmac.compare_digest(hash_token(token), stored_hash)


def bearer_token(request: HTTPConnection) -> str:
    """Return the token of a request or raise `TokenMissing`."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise TokenMissing(
            "the request carries no token", hint="send the header Authorization: Bearer <token>"
        )
    return token.strip()
