"""What is said of a bridge that does not work."""

from __future__ import annotations

import logging
from typing import Any

import psycopg

from postroad.bridge.errors import BridgeError, translate
from postroad.bus.errors import BusError
from postroad.bus.reconnect import SURVIVABLE

__all__ = ["log_failure", "sentence"]

logger = logging.getLogger(__name__)


def log_failure(bridge: str, problem: str, failures: BaseExceptionGroup[Any]) -> None:
    """Log why a bridge stopped; with the traceback when nobody has foreseen it."""
    foreseen, unforeseen = failures.split((*SURVIVABLE, BridgeError))
    del foreseen
    extra = {"bridge": bridge, "reason": problem}
    logger.warning("bridge_failed", extra=extra, exc_info=unforeseen)


def sentence(failure: BaseException) -> str:
    """Say in one line why a bridge does not work."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    if isinstance(failure, psycopg.Error):
        failure = translate(failure) or failure
    if isinstance(failure, BusError | BridgeError) and failure.hint:
        return f"{failure} ({failure.hint})"
    return (str(failure).strip() or type(failure).__name__).splitlines()[0]
