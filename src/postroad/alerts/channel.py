"""Channels: a name and a URL from the settings, and the class that sends to it.

`smtp://` and `smtps://` have a client of their own, which reports the exact answer of the mail
server. Every other URL is Apprise's: chat, SMS, push, webhooks.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from postroad.alerts.errors import ChannelNotFound, ChannelRefused
from postroad.alerts.rendering import Rendered
from postroad.settings.alerts import AlertsSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Channel(Protocol):
    """A destination of alerts."""

    name: str
    kind: str
    least_severity: str
    address: str
    """The address without secrets."""

    def send(self, rendered: Rendered, timeout: timedelta) -> None:
        """Send, blocking; raise DeliveryFailed when the other side does not accept it."""
        ...


def open_channels(settings: AlertsSettings) -> list[Channel]:
    """Return the channels of the settings. Raises ChannelRefused."""
    from postroad.alerts.apprise_channel import AppriseChannel
    from postroad.alerts.email_channel import EmailChannel

    for name in settings.channel_severity:
        if name not in settings.channels:
            reason = f"alerts.channel_severity names {name}, which is not a channel"
            hint = "name a channel of alerts.channels"
            raise ChannelRefused(reason, hint=hint, channel=name)
    channels: list[Channel] = []
    for name, secret in sorted(settings.channels.items()):
        if not _NAME.fullmatch(name):
            hint = "use a-z, 0-9, dot, dash and underscore"
            raise ChannelRefused(f"a channel cannot be named {name!r}", hint=hint, channel=name)
        url = secret.get_secret_value()
        severity = settings.channel_severity.get(name, settings.least_severity)
        is_email = urlsplit(url).scheme in ("smtp", "smtps")
        kind = EmailChannel if is_email else AppriseChannel
        channels.append(kind(name, url, severity))
    return channels


def select_channels(channels: list[Channel], names: tuple[str, ...]) -> list[Channel]:
    """Return the channels of these names, or all if none is given. Raises ChannelNotFound."""
    known = {channel.name: channel for channel in channels}
    for name in names:
        if name not in known:
            hint = f"the settings name {', '.join(known) or 'none'}"
            raise ChannelNotFound(f"there is no channel {name}", hint=hint, channel=name)
    return [known[name] for name in names] if names else channels
