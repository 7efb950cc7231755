"""Errors of the broker."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["BrokerError", "UrlInvalid"]


class BrokerError(PostroadError):
    """Something that the broker refuses."""

    code = "broker"


class UrlInvalid(BrokerError):
    """A broker or result URL cannot be read."""

    code = "broker_url_invalid"
    kind = "usage"
