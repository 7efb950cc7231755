"""Alerts: reliable notices to the administrator, grouped and without repetition.

A component reports in its own transaction, `raise_alert(connection, key, …)` and later
`clear_alert(connection, key)`; a rolled back report never happened. A key identifies the problem.

```
report ──fold──> open ──────────────────── clear ──────> cleared
                  │ the same key again: counts up           │
                  ▼                                         ▼
        notice to each channel                    all-clear, once, to each
                  │                               notified channel
        waiting ──take──> sending ──> sent
           ▲                 │ failed, or its sender died: lease ends
           └── backoff ──────┘ ─── too old ──> given_up
```

Reporting takes no lock: reports are rows that are only inserted. A sender (`AlertSender`) folds
them into episodes, writes notices and sends them. Alerts raised together share a notice, and the
gap between notices grows while alerts continue, so a storm causes few notices. Two senders never
hold the same notice. When a sender dies while it sends, its lease expires and the next one sends
the same text under the same Message-ID, because the first attempt may have arrived.
"""

from postroad.alerts.errors import *  # noqa: F403 - every error is public
from postroad.alerts.relay import AlertRelay
from postroad.alerts.reporting import (
    Severity,
    clear_alert,
    clear_alert_async,
    raise_alert,
    raise_alert_async,
)
from postroad.alerts.sender import AlertSender
from postroad.alerts.watchers import ClockWatcher, DiskWatcher, PauseWatcher

__all__ = [
    "AlertRelay", "AlertSender", "ClockWatcher", "DiskWatcher", "PauseWatcher", "Severity",
    "clear_alert", "clear_alert_async", "raise_alert", "raise_alert_async",
]  # fmt: skip
