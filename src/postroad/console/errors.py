"""Errors of the console.

```
ConsoleError
├── LoginRefused      wrong name or password
├── TooManyLogins     retryable: the window ends by itself
├── NotAllowed        the role does not suffice
├── LastAdmin         KN001
├── NameTaken         KN002
├── AddressInvalid    an address of a page that cannot be read
└── AccountInvalid    a name or a password that cannot be used
```
"""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = [
    "AccountInvalid",
    "AddressInvalid",
    "ConsoleError",
    "LastAdmin",
    "LoginRefused",
    "NameTaken",
    "NotAllowed",
    "TooManyLogins",
]


class ConsoleError(PostroadError, code="console"):
    """The console cannot do what was asked for."""


class LoginRefused(ConsoleError, kind="refused"):
    """The name or the password is wrong; which of them is not told."""


class TooManyLogins(ConsoleError, kind="refused", retryable=True):
    """Too many logins failed of late."""


class NotAllowed(ConsoleError, kind="refused"):
    """The account is known and its role does not suffice."""


class LastAdmin(ConsoleError, kind="refused"):
    """The last local admin can neither be removed nor become less."""


class NameTaken(ConsoleError, kind="refused"):
    """The name belongs to an account of another kind: a local one, or one of the provider."""


class AddressInvalid(ConsoleError, kind="usage"):
    """The address of a page holds something that cannot be read, such as a letter for a number."""


class AccountInvalid(ConsoleError, kind="usage"):
    """The name or the password cannot be used."""
