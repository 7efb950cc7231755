"""The console: web pages on which operators monitor and operate all components.

**Guarantees.** Pages show the components' own read-only views, a few seconds old, and older only
if a query is expensive. An action is checked against the current role and recorded in the
audit log before and after it. A hundred open pages cost the database about as much as one, because
values are cached (`cache.py`).

**Access.**

```
browser ──> Gate: host, origin, session ──> pages (NiceGUI, one websocket each)
               │ no session ──> login ──argon2──> session cookie (HttpOnly, SameSite)
               └ foreign host or origin, forged websocket ──> refused
viewer: read · operator: act on messages, processes, files · admin: accounts, settings, audit
```

**Crashes.** Only a few minutes of charts are kept in memory. A page reconnects automatically. An
interrupted action stays in the audit log as begun; it is one transaction of its component, so it
was done completely or not at all.
"""

from postroad.console.accounts import ROLES, Accounts, Role
from postroad.console.errors import *  # noqa: F403 - every error is public

__all__ = ["ROLES", "Accounts", "Role"]
