"""Errors of the console.

```
ConsoleError
├── LoginRefused      wrong name or password
├── TooManyLogins     retryable: the window ends by itself
├── NotAllowed        the role does not suffice
├── LastAdmin         KN001
└── AccountInvalid    a name or a password that cannot be used
```
"""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = [
    "AccountInvalid",
    "ConsoleError",
    "LastAdmin",
    "LoginRefused",
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
    """The last admin cannot be removed."""

    code = "console_last_admin"
    kind = "refused"


class AccountInvalid(ConsoleError):
    """The name or the password cannot be used."""

    code = "console_account_invalid"
    kind = "usage"
