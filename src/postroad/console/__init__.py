"""The console: what operators see of all components, and what they may do, in a browser.

**Guarantees.** Pages show the components' own read-only views, a few seconds old, and older only
where a query is expensive. An action is checked against the role at that moment and recorded in the
audit before and after it. A hundred open pages cost the database about what one does, because
values are cached (`cache.py`).

**Access.**

```
browser ──> Gate: host, origin, session ──> pages (NiceGUI, one websocket each)
               │ no session ──> login ──argon2──> session cookie (HttpOnly, SameSite)
               └ foreign host or origin, forged websocket ──> refused
viewer: read · operator: act on messages, processes, files · admin: accounts, settings, audit
```

**Crashes.** It keeps only minutes of charts in memory. A page reconnects automatically. An action
that was interrupted stays in the audit as begun; it is one transaction of its component, so it was
done or not done.
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
