"""Errors of the broker."""

from __future__ import annotations

from postroad.errors import PostroadError

__all__ = ["BrokerError", "UrlInvalid"]


class BrokerError(PostroadError, code="broker"):
    """Something that the broker refuses."""


class UrlInvalid(BrokerError, kind="usage"):
    """A broker or result URL cannot be read."""
