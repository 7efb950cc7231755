"""A running exchange for tests and examples: a real server in a thread of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from postroad.exchange import operations
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.service import LoopThread
from postroad.settings import ExchangeSettings


class RunningExchange(LoopThread):
    """An exchange on a database that has its schema, with its folders in `root`.

    Use it with `with`, or call `start` and `stop`. `settings` shortens time-outs and the like.
    """

    def __init__(
        self, dsn: str, root: Path | str, settings: ExchangeSettings | None = None
    ) -> None:
        self._dsn = dsn
        self._server = ExchangeServer(dsn, Path(root), settings or ExchangeSettings(), port=0)
        super().__init__(self._server)

    @property
    def url(self) -> str:
        """The address where it listens."""
        if not self.is_running:
            raise RuntimeError("the exchange was not started")
        return self._server.url

    def token(self, client: str, *, is_admin: bool = False) -> str:
        """Add a client that may send to and take from all databases, and return its token."""
        made = run_blocking(
            self._dsn, operations.add_client, client, is_admin=is_admin, databases=None
        )
        return made.token

    def start(self) -> Self:
        """Start it and wait until it serves; raise its error if it fails."""
        super().start()
        self.ready()
        return self
