"""Channels: a name and a URL from the settings, and the class that sends to it.

`smtp://` and `smtps://` have a separate client, which reports the exact answer of the mail server.
Every other URL is sent with Apprise: chat, SMS, push, webhooks.
"""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from logging.handlers import BufferingHandler
from typing import Any
from urllib.parse import urlsplit

from postroad.alerts.errors import ChannelNotFound, ChannelRefused, DeliveryFailed
from postroad.alerts.rendering import Rendered
from postroad.settings.alerts import AlertsSettings

# The log lines of one attempt; the next attempt replaces them.
MAX_WARNINGS = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Channel:
    """A destination of alerts."""

    kind: str
    # Without secrets.
    address: str

    def __init__(self, name: str, url: str, least_severity: str) -> None:
        self.name = name
        self._url = url
        self.least_severity = least_severity

    def send(self, rendered: Rendered, timeout: timedelta) -> None:
        """Send, blocking; raise DeliveryFailed when the other side does not accept it."""
        raise NotImplementedError


class AppriseChannel(Channel):
    """Sends through one Apprise URL."""

    def __init__(self, name: str, url: str, least_severity: str) -> None:
        super().__init__(name, url, least_severity)
        try:
            import apprise
        except ModuleNotFoundError:
            hint = "pip install 'postroad[alerts]', or use an smtp:// URL"
            text = f"channel {name} needs the package apprise"
            raise ChannelRefused(text, hint=hint, channel=name) from None
        self.kind = f"apprise {urlsplit(url).scheme}"
        plugin: Any = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if plugin is None:
            hint = "see Apprise's list of services for their URLs"
            text = f"the URL of channel {name} is not a valid Apprise URL"
            raise ChannelRefused(text, hint=hint, channel=name)
        self._plugin = plugin
        self.address = str(plugin.url(privacy=True))
        self._warning = apprise.NotifyType.WARNING

    def send(self, rendered: Rendered, timeout: timedelta) -> None:
        """Send; raise DeliveryFailed when Apprise reports a failure."""
        plugin, seconds = self._plugin, timeout.total_seconds()
        plugin.socket_connect_timeout = plugin.socket_read_timeout = seconds
        # Apprise logs the reason for a failure but does not return it.
        capture, logger = BufferingHandler(MAX_WARNINGS), logging.getLogger("apprise")
        capture.setLevel(logging.WARNING)
        logger.addHandler(capture)
        message = {"title": rendered.subject, "body": rendered.text, "notify_type": self._warning}
        try:
            is_sent = plugin.notify(**message)
        except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything
            reason = f"{type(failure).__name__}: {failure}"
            raise DeliveryFailed(reason, channel=self.name) from None
        finally:
            logger.removeHandler(capture)
        if not is_sent:
            messages = [record.getMessage() for record in capture.buffer]
            reason = "; ".join(messages) or f"{self.kind} reported a failure"
            raise DeliveryFailed(reason.replace(self._url, self.address)[:500], channel=self.name)


def open_channels(settings: AlertsSettings) -> list[Channel]:
    """Return the channels of the settings. Raises ChannelRefused."""
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
