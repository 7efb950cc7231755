"""Alerts: what the administrator must know, told for certain, once, and not a thousand times.

Any room reports in its own transaction, `raise_alert(connection, key, …)` and later
`clear_alert(connection, key)`; what rolls back was never reported. A key names what is wrong.

```
report ──fold──> open ──────────────────── clear ──────> cleared
                  │ the same key again: counts up           │
                  ▼                                         ▼
        notice to each channel                    all-clear, once, to each
                  │                               channel that was told
        waiting ──take──> sending ──> sent
           ▲                 │ failed, or its sender died: lease ends
           └── backoff ──────┘ ─── too old ──> given_up
```

Reports wait for nobody: they are rows that are only inserted. A sender (`AlertSender`) folds them
into episodes, writes notices and sends them. Things that come together share a notice, and the gap
between notices grows while things go on, so a storm is told in a few. Two senders never hold the
same notice. A sender that dies while it sends leaves a lease that ends; the next one sends the same
text under the same Message-ID, since nobody can know whether the other side took the first.
"""

from postroad.alerts.errors import (
    AlertNotFound,
    AlertsError,
    ChannelNotFound,
    ChannelRefused,
    DeliveryFailed,
    InvalidAlert,
)
from postroad.alerts.relay import AlertRelay
from postroad.alerts.reporting import (
    Severity,
    clear_alert,
    clear_alert_async,
    raise_alert,
    raise_alert_async,
)
from postroad.alerts.sender import AlertSender
from postroad.alerts.watchers import ClockWatcher, DiskWatcher

__all__ = [
    "AlertNotFound",
    "AlertRelay",
    "AlertSender",
    "AlertsError",
    "ChannelNotFound",
    "ChannelRefused",
    "ClockWatcher",
    "DeliveryFailed",
    "DiskWatcher",
    "InvalidAlert",
    "Severity",
    "clear_alert",
    "clear_alert_async",
    "raise_alert",
    "raise_alert_async",
]
