"""The HTTP server as a service: uvicorn inside the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from postroad.errors import PostroadError
from postroad.service import Service, first_of
from postroad.settings import HttpSettings
from postroad.web.limits import BodyPace
from postroad.web.origins import OriginCheck

BACKLOG = 512
GRACE_SECONDS = 10
# The time limit for sending the head of a request, and its maximum size.
HEAD_TIMEOUT_SECONDS = 30.0
MAX_HEAD_BYTES = 65_536

# Serves an application below a prefix of another server while the block runs.
Publish: TypeAlias = Callable[[ASGIApp], AbstractAsyncContextManager[None]]


class AddressInUse(PostroadError, code="web_address_in_use", kind="unavailable"):
    """The address is in use by another process, or is not local."""


class TlsInvalid(PostroadError, code="web_tls_invalid", kind="usage"):
    """The certificate or its key is invalid."""


class WebServer(Service):
    """Serves one application until it is stopped; port 0 takes a free one.

    Every request passes the checks of `HeadLimit`, `OriginCheck` and `BodyPace` first. `http`
    names the hosts and proxies that are trusted; X-Forwarded headers of other clients are ignored.
    A `listener` that is given is used instead of the port, and closed at the end. With `publish`
    the application is a part of another server, which listens and makes these checks.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        name: str = "http",
        http: HttpSettings | None = None,
        form_paths: tuple[str, ...] = (),
        listener: socket.socket | None = None,
        publish: Publish | None = None,
    ) -> None:
        super().__init__(name)
        self._given, self._publish = app, publish
        self._listener = listener
        self._http = http = http or HttpSettings()
        self.app = OriginCheck(
            BodyPace(app),
            host=host,
            public_url=http.public_url,
            allowed_hosts=http.allowed_hosts,
            form_paths=form_paths,
        )
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._http.tls_cert else 'http'}://{host}:{self.port}"

    async def run(self) -> None:
        """Listen, serve, and let requests in flight end when asked to stop."""
        if self._publish is not None:
            app = self._given
            begun = (
                app.router.lifespan_context(app) if isinstance(app, Starlette) else nullcontext()
            )
            async with begun, self._publish(app):
                self.announce_ready()
                await self.stopping.wait()
            return
        self._check_tls()
        with contextlib.closing(self._listener or listen(self.host, self.port)) as listener:
            self.port = listener.getsockname()[1]
            config = uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                lifespan="on",
                timeout_graceful_shutdown=GRACE_SECONDS,
                server_header=False,
                ssl_certfile=self._http.tls_cert,
                ssl_keyfile=self._http.tls_key,
                proxy_headers=bool(self._http.trusted_proxies),
                # Passed even if empty, because otherwise an environment variable is read.
                forwarded_allow_ips=list(self._http.trusted_proxies),
            )
            config.load()
            parser = config.http_protocol_class
            config.http_protocol_class = type("LimitedProtocol", (HeadLimit, parser), {})
            server = _QuietServer(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                await first_of(server.has_started, serving)
                if serving.done():
                    serving.result()
                    raise RuntimeError("the application did not start; see its log")
                self.announce_ready()
                await first_of(self.stopping, serving)
            finally:
                server.should_exit = True
                await serving

    def _check_tls(self) -> None:
        cert, key = self._http.tls_cert, self._http.tls_key
        if cert is None:
            return
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as failure:
            raise TlsInvalid(
                f"{cert} and its key are invalid: {failure}",
                hint="pass --tls-cert and --tls-key PEM files that belong together",
            ) from failure


def listen_shared(host: str, port: int, count: int) -> list[socket.socket]:
    """Return listening sockets among which the kernel spreads connections. Raises AddressInUse."""
    # First without sharing, because another program must not get a part of the connections.
    with listen(host, port) as alone:
        port = alone.getsockname()[1]
    return [listen(host, port, is_shared=True) for _ in range(count)]


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a listening socket; the caller closes it. Raises AddressInUse."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The address :: accepts IPv4, too.
    is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    options = {"reuse_port": is_shared, "dualstack_ipv6": is_dual}
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, **options)
    except OSError as failure:
        # Without the address, which the library adds.
        reason = (failure.strerror or "").partition(" (while")[0]
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {reason}",
            hint="choose another --port, or 0 for a free one",
        ) from failure


class HeadLimit(asyncio.Protocol):
    """Mixin for uvicorn protocols that closes connections whose request head is late or too large.

    uvicorn limits the time between requests, but not that of a request which has begun.
    """

    # Set by uvicorn's protocols: the latest request, None before the first one.
    cycle: Any
    transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_upgraded = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Parse the data; close the connection when the head grows too large."""
        super().data_received(data)
        cycle = self.cycle
        if self._is_upgraded or (cycle is not None and not cycle.response_complete):
            self._stop_timer()
            self._head_bytes = 0
            return
        self._start_timer()
        # The rest of a body that the application did not read is not part of a head.
        if cycle is None or not cycle.more_body:
            self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, *event: Any) -> None:
        """Hand the connection over to the WebSocket protocol."""
        self._is_upgraded = True
        super().handle_websocket_upgrade(*event)  # type: ignore[misc]

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HEAD_TIMEOUT_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _QuietServer(uvicorn.Server):
    """Leaves signals to the hosting process, and announces the end of the start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.has_started = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not touch the handlers of the process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Set `has_started` after the start."""
        await super().startup(sockets=sockets)
        if self.started:
            self.has_started.set()
