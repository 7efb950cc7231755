"""The console: what operators see of all rooms, and what they may do, in a browser.

**What it promises.** It shows what is, from the rooms' own read-only views, a few seconds old, and
older only where a look is dear. Whatever somebody does is allowed by their role at that moment, and
written to the audit before it happens and after it ended. Looking costs the database about the same
for one open page as for a hundred: looks are shared (`looks.py`).

**Who gets in.**

```
browser ──> Gate: host, origin, session ──> pages (NiceGUI, one websocket each)
               │ no session ──> login ──argon2──> session cookie (HttpOnly, SameSite)
               └ foreign host or origin, forged websocket ──> refused
viewer: look · operator: act on messages, processes, files · admin: accounts, settings, audit
```

**What happens when it dies half-way.** It keeps nothing but minutes of charts. A page whose server
went reconnects by itself. An action that was cut off stands in the audit as begun; the
action itself is one transaction of the room, done or not done.
"""

from postroad.console.accounts import ROLES, Accounts, Role
from postroad.console.errors import (
    AccountInvalid,
    AddressInvalid,
    ConsoleError,
    LastAdmin,
    LoginRefused,
    NameTaken,
    NotAllowed,
    TooManyLogins,
)

__all__ = [
    "ROLES",
    "AccountInvalid",
    "Accounts",
    "AddressInvalid",
    "ConsoleError",
    "LastAdmin",
    "LoginRefused",
    "NameTaken",
    "NotAllowed",
    "Role",
    "TooManyLogins",
]
