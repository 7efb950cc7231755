"""Errors of the broker."""

from postroad.errors import PostroadError


class BrokerError(PostroadError, code="broker"):
    """The broker cannot be configured."""


class UrlInvalid(BrokerError, kind="usage"):
    """A broker or result URL is invalid."""
