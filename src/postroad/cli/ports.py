"""Which ports the services of `up` listen on: the usual ones where they are free."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from postroad.web.server import AddressInUse

__all__ = ["check_port", "choose_port"]


def choose_port(host: str, usual: int, *, is_free_wanted: bool = False) -> int:
    """Return the usual port, or a free one where it is taken or a free one is wanted."""
    for port in (0,) if is_free_wanted else (usual, 0):
        with contextlib.suppress(OSError), _listening(host, port) as listener:
            return int(listener.getsockname()[1])
    return usual


def check_port(host: str, port: int) -> None:
    """Refuse early, with a sentence, what a service could only fail at. Raises AddressInUse."""
    try:
        with _listening(host, port):
            return
    except OSError as taken:
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {taken.strerror}",
            hint="choose another --port, or 0 for a free one",
        ) from taken


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        yield listener
