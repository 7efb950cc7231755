"""Errors of the room alerts.

```
AlertsError
├── InvalidAlert       MA001   no such severity, no key, no title
├── AlertNotFound      MA002   no episode of this key
├── ChannelNotFound    MA003   the settings name no such channel
├── ChannelRefused     alerts_channel_refused    an address that nobody can send to
└── DeliveryFailed     alerts_delivery_failed    the other side did not take it (retryable)
```
"""

from __future__ import annotations

import psycopg

from postroad.errors import PostroadError
from postroad.postgres.errors import raised_by

__all__ = [
    "AlertNotFound",
    "AlertsError",
    "ChannelNotFound",
    "ChannelRefused",
    "DeliveryFailed",
    "InvalidAlert",
    "translate",
]


class AlertsError(PostroadError, code="alerts"):
    """Something about alerts and their delivery."""


class InvalidAlert(AlertsError, code="MA001", kind="usage"):
    """An alert without a key or a title, or with a severity that does not exist."""


class AlertNotFound(AlertsError, code="MA002", kind="not_found"):
    """Nothing was raised under this key."""


class ChannelNotFound(AlertsError, code="MA003", kind="not_found"):
    """The settings name no channel like this."""


class ChannelRefused(AlertsError, kind="usage"):
    """The address of a channel cannot be used."""


class DeliveryFailed(AlertsError, kind="unavailable", retryable=True):
    """A notice was not taken by the other side; it is tried again."""


def translate(error: psycopg.Error) -> AlertsError | None:
    """Return the component's error for one that schema alerts raised, else None."""
    return raised_by(AlertsError, error)
