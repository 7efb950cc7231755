"""Passwords: generated here, hashed with argon2id, compared in two separate threads.

A comparison is deliberately expensive; with two threads, many concurrent logins cannot slow down
everything else much.
"""

from __future__ import annotations

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from postroad.console.errors import AccountInvalid

LENGTH_LEAST = 10
# Letters and digits that are easily confused are left out.
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_GROUPS, _GROUP_LENGTH = 4, 5


def new_password() -> str:
    """Return a readable password of 100 random bits."""
    return "-".join(
        "".join(secrets.choice(_ALPHABET) for _ in range(_GROUP_LENGTH)) for _ in range(_GROUPS)
    )


def check_password(password: str) -> str:
    """Return a password that is long enough. Raises AccountInvalid."""
    if len(password) < LENGTH_LEAST:
        raise AccountInvalid(
            "the password is too short", hint=f"use at least {LENGTH_LEAST} characters"
        )
    return password


def hash_password(password: str) -> str:
    """Return the hash that is stored instead of the password."""
    return _hasher().hash(password)


async def is_password_of(password: str, stored_hash: str | None) -> bool:
    """Check whether a password belongs to a stored hash.

    Without a hash the same work is done, so that the duration does not reveal which names exist.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), _verify, password, stored_hash)


def _verify(password: str, stored_hash: str | None) -> bool:
    try:
        _hasher().verify(stored_hash or _nobody(), password)
    except (VerificationError, InvalidHashError):
        return False
    return stored_hash is not None


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "password")


@cache
def _hasher() -> PasswordHasher:
    return PasswordHasher()


@cache
def _nobody() -> str:
    return _hasher().hash(secrets.token_hex())
