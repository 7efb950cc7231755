"""Errors of the alerts component."""

from postroad.errors import PostroadError


class AlertsError(PostroadError, code="alerts"):
    """An alert cannot be stored or delivered."""


class InvalidAlert(AlertsError, code="MA001", kind="usage"):
    """The alert has no key or title, its severity does not exist, or its mute is too long."""


class AlertNotFound(AlertsError, code="MA002", kind="not_found"):
    """No alert has this key."""


class ChannelNotFound(AlertsError, code="MA003", kind="not_found"):
    """The settings have no channel of this name."""


class ChannelRefused(AlertsError, kind="usage"):
    """The address of a channel is invalid."""


class DeliveryFailed(AlertsError, kind="unavailable", retryable=True):
    """The channel did not accept a notice; it is sent again later."""
