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

__all__ = [
    "AlertNotFound",
    "AlertsError",
    "ChannelNotFound",
    "ChannelRefused",
    "DeliveryFailed",
    "InvalidAlert",
    "translate",
]


class AlertsError(PostroadError):
    """Something about alerts and their delivery."""

    code = "alerts"


class InvalidAlert(AlertsError):
    """An alert without a key or a title, or with a severity that does not exist."""

    code = "MA001"
    kind = "usage"


class AlertNotFound(AlertsError):
    """Nothing was raised under this key."""

    code = "MA002"
    kind = "not_found"


class ChannelNotFound(AlertsError):
    """The settings name no channel like this."""

    code = "MA003"
    kind = "not_found"


class ChannelRefused(AlertsError):
    """The address of a channel cannot be used."""

    code = "alerts_channel_refused"
    kind = "usage"


class DeliveryFailed(AlertsError):
    """A notice was not taken by the other side; it is tried again."""

    code = "alerts_delivery_failed"
    kind = "unavailable"
    retryable = True


_BY_CODE = {leaf.code: leaf for leaf in (InvalidAlert, AlertNotFound, ChannelNotFound)}


def translate(error: psycopg.Error) -> AlertsError | None:
    """Return the room's error for one that schema alerts raised, else None."""
    leaf = _BY_CODE.get(error.sqlstate or "")
    if leaf is None:
        return None
    return leaf(
        error.diag.message_primary or leaf.__doc__ or leaf.code, hint=error.diag.message_hint
    )
