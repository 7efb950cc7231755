"""Errors of the console."""

from __future__ import annotations

from typing import ClassVar

from postroad.errors import PostroadError


class ConsoleError(PostroadError, code="console"):
    """The console refuses a login or an action."""


class LoginRefused(ConsoleError, kind="refused"):
    """The name or the password is wrong; the message does not reveal which."""


class TooManyLogins(ConsoleError, kind="refused", retryable=True):
    """Too many logins have failed recently."""


class NotAllowed(ConsoleError, kind="refused"):
    """The role of the account does not permit this."""

    status: ClassVar[int] = 403


class LastAdmin(ConsoleError, kind="refused"):
    """The last local admin can be neither removed nor demoted."""


class NameTaken(ConsoleError, kind="refused"):
    """The name belongs to an account of another kind: a local one, or one of the provider."""


class AddressInvalid(ConsoleError, kind="usage"):
    """A parameter in the address of a page is invalid, such as a letter for a number."""


class AccountInvalid(ConsoleError, kind="usage"):
    """The name or the password does not meet the rules."""
