"""Channels of Apprise, by URL: SMS gateways, chat, push, webhooks."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from postroad.alerts.errors import ChannelRefused, DeliveryFailed
from postroad.alerts.rendering import Rendered


class _LogCapture(logging.Handler):
    """Captures the warnings of Apprise, which logs why it failed and does not return it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class AppriseChannel:
    """Sends through one Apprise URL."""

    kind = "apprise"

    def __init__(self, name: str, url: str, least_severity: str) -> None:
        self.name = name
        self.least_severity = least_severity
        try:
            import apprise
        except ModuleNotFoundError:
            raise ChannelRefused(
                f"channel {name} needs the package apprise",
                hint="pip install 'postroad[alerts]', or use an smtp:// URL",
                channel=name,
            ) from None
        self._url = url
        self.kind = f"apprise {urlsplit(url).scheme}"
        plugin: Any = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if plugin is None:
            raise ChannelRefused(
                f"the URL of channel {name} is not a valid Apprise URL",
                hint="see Apprise's list of services for their URLs",
                channel=name,
            )
        self._plugin = plugin
        self.address = str(plugin.url(privacy=True))

    def send(self, rendered: Rendered, timeout: timedelta) -> None:
        """Send; raise DeliveryFailed when Apprise reports a failure."""
        import apprise

        seconds = timeout.total_seconds()
        self._plugin.socket_connect_timeout = seconds
        self._plugin.socket_read_timeout = seconds
        capture = _LogCapture()
        logger = logging.getLogger("apprise")
        logger.addHandler(capture)
        try:
            # The plug-in itself: Apprise's own `notify` may use the running event loop.
            is_sent = self._plugin.notify(
                title=rendered.subject, body=rendered.text, notify_type=apprise.NotifyType.WARNING
            )
        except Exception as failure:  # noqa: BLE001 - a plug-in may raise anything
            reason = f"{type(failure).__name__}: {failure}"
            raise DeliveryFailed(reason, channel=self.name) from None
        finally:
            logger.removeHandler(capture)
        if not is_sent:
            reason = "; ".join(capture.messages) or f"{self.kind} reported a failure"
            raise DeliveryFailed(reason.replace(self._url, self.address)[:500], channel=self.name)
