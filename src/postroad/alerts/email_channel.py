"""E-mail by SMTP: `smtp://[user:password@]host[:port]?to=a@example.com&to=…&from=…`.

| URL | encryption |
|---|---|
| `smtp://host` | STARTTLS if offered; `?starttls=required` insists, `no` never uses it |
| `smtps://host` | TLS from the first byte |

A password is never sent unencrypted unless `?starttls=no` is given.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from datetime import timedelta
from email.message import EmailMessage
from email.utils import formatdate
from functools import partial
from urllib.parse import parse_qs, unquote, urlsplit

from postroad.alerts.channel import Channel
from postroad.alerts.errors import ChannelRefused, DeliveryFailed
from postroad.alerts.rendering import Rendered

_PORTS = {("smtp", False): 25, ("smtp", True): 587, ("smtps", False): 465, ("smtps", True): 465}
_QUERY = {"to", "from", "starttls"}


class EmailChannel(Channel):
    """Sends one message to all its recipients."""

    kind = "email"

    def __init__(self, name: str, url: str, least_severity: str) -> None:
        super().__init__(name, url, least_severity)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as wrong:
            raise self._refused(str(wrong)) from None
        query = parse_qs(parts.query)
        self._recipients = [one for given in query.get("to", []) for one in given.split(",") if one]
        self._starttls = query.get("starttls", ["auto"])[-1]
        if unknown := set(query) - _QUERY:
            raise self._refused(f"unknown option {', '.join(sorted(unknown))}")
        if not parts.hostname or not self._recipients:
            raise self._refused("it needs a host and ?to=")
        if self._starttls not in ("auto", "required", "no"):
            raise self._refused("starttls is auto, required or no")
        self._host = parts.hostname
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._port = port or _PORTS[parts.scheme, bool(self._user)]
        self._is_tls = parts.scheme == "smtps"
        self._sender = query.get("from", [f"postroad@{self._host}"])[-1]
        place = f"{parts.scheme}://{self._host}:{port or ''}".rstrip(":")
        self.address = f"{', '.join(self._recipients)} by {place}"

    def send(self, rendered: Rendered, timeout: timedelta) -> None:
        """Send; raise DeliveryFailed unless the server accepts it for every recipient."""
        message = EmailMessage()
        message["Subject"] = rendered.subject
        message["From"] = self._sender
        message["To"] = ", ".join(self._recipients)
        message["Date"] = formatdate(localtime=False)
        message["Message-ID"] = rendered.message_id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(rendered.text)
        try:
            self._send(message, timeout.total_seconds())
        except (smtplib.SMTPException, OSError) as failure:
            raise DeliveryFailed(_reason(failure), channel=self.name) from failure

    def _send(self, message: EmailMessage, seconds: float) -> None:
        context = ssl.create_default_context()
        encrypted = partial(smtplib.SMTP_SSL, context=context)
        connect: Callable[..., smtplib.SMTP] = encrypted if self._is_tls else smtplib.SMTP
        with connect(self._host, self._port, timeout=seconds) as client:
            client.ehlo_or_helo_if_needed()
            if not self._is_tls and self._starttls != "no":
                # Without STARTTLS a message may be sent, but never a password.
                if client.has_extn("starttls"):
                    client.starttls(context=context)
                    client.ehlo()
                elif self._starttls == "required" or self._user:
                    raise smtplib.SMTPNotSupportedError("the server does not offer STARTTLS")
            if self._user:
                client.login(self._user, self._password)
            refused = client.send_message(message)
        if refused:
            raise smtplib.SMTPRecipientsRefused(refused)

    def _refused(self, reason: str) -> ChannelRefused:
        # The URL itself is a secret and is not repeated.
        return ChannelRefused(
            f"the URL of channel {self.name} is invalid: {reason}",
            hint="write smtp://[user:password@]host[:port]?to=admin@example.com&from=…",
            channel=self.name,
        )


def _reason(failure: Exception) -> str:
    if isinstance(failure, smtplib.SMTPRecipientsRefused):
        refusals = [f"{who}: {_answer(*found)}" for who, found in failure.recipients.items()]
        return f"refused for {'; '.join(refusals)}"
    if isinstance(failure, smtplib.SMTPResponseException):
        return _answer(failure.smtp_code, failure.smtp_error)
    return str(failure) or type(failure).__name__


def _answer(code: int, text: bytes | str) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return f"{code} {shown}"
