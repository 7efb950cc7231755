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


class ConsoleError(PostroadError):
    """The console cannot do what was asked for."""

    code = "console"


class LoginRefused(ConsoleError):
    """The name or the password is wrong; which of them is not told."""

    code = "console_login_refused"
    kind = "refused"


class TooManyLogins(ConsoleError):
    """Too many logins failed of late."""

    code = "console_too_many_logins"
    kind = "refused"
    retryable = True


class NotAllowed(ConsoleError):
    """The account is known and its role does not suffice."""

    code = "console_not_allowed"
    kind = "refused"


class LastAdmin(ConsoleError):
    """The last local admin can neither be removed nor become less."""

    code = "console_last_admin"
    kind = "refused"


class NameTaken(ConsoleError):
    """The name belongs to an account of another kind: a local one, or one of the provider."""

    code = "console_name_taken"
    kind = "refused"


class AddressInvalid(ConsoleError):
    """The address of a page holds something that cannot be read, such as a letter for a number."""

    code = "console_address_invalid"
    kind = "usage"


class AccountInvalid(ConsoleError):
    """The name or the password cannot be used."""

    code = "console_account_invalid"
    kind = "usage"
