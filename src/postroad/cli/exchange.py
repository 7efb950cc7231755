"""`postroad exchange`: serves and operates the exchange."""

from __future__ import annotations

import socket
from pathlib import Path

import click
import uvloop

from postroad.cli.context import Application, command, run_service
from postroad.cli.exchange_context import as_root, exchange_root, installed
from postroad.cli.exchange_operate import COMMANDS
from postroad.cli.exchange_workers import Workers
from postroad.cli.output import print_json
from postroad.cli.parts import PartContext
from postroad.exchange.server import ExchangeServer
from postroad.web.server import listen_shared


@click.group()
def exchange() -> None:
    """Deliver files to ERP instances in two-phase processes.

    Example: postroad exchange serve --root /var/lib/postroad/exchange --port 8420
    """


for one in COMMANDS:
    exchange.add_command(one)


@command(exchange)
@click.option("--root", type=as_root, help="The root folder, or s3://bucket/prefix.")
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0: any free one.")
@click.option("--workers", type=click.IntRange(1, 64), help="How many processes; default 1.")
@click.option("--fd", type=int, help="Serve on this inherited listening socket, not on a port.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Serve HTTPS: certificate, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="The certificate's key, PEM.")
def serve(
    application: Application,
    root: Path | str | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    fd: int | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    as_json: bool,
) -> None:
    """Serve the exchange until Ctrl-C.

    With `--workers`, SIGHUP replaces the processes one by one.

    Example: postroad exchange serve --root ./exchange --port 8420
    """
    http = application.settings.http
    if tls_cert is not None:
        http = http.model_copy(update={"tls_cert": tls_cert, "tls_key": tls_key})
    with application.database() as dsn:
        installed(application, dsn)
        settings = application.settings.exchange.override(host=host, port=port)
        root = root or exchange_root(application)
        server: ExchangeServer | Workers
        if workers is not None and workers > 1:
            host = settings.host
            listeners = listen_shared(host, settings.port, workers)
            given = {"--root": root, "--host": host, "--tls-cert": tls_cert, "--tls-key": tls_key}
            options = [str(part) for pair in given.items() if pair[1] for part in pair]
            command = ["exchange", "serve", *options]
            url = f"{'https' if http.tls_cert else 'http'}://{host}:{listeners[0].getsockname()[1]}"
            server = Workers(PartContext(application, dsn), command, listeners, url=url)
        else:
            server = ExchangeServer(
                dsn,
                root,
                settings,
                is_pooled=application.settings.database.is_pooled,
                http=http,
                listener=None if fd is None else socket.socket(fileno=fd),
            )

        def announce() -> None:
            if as_json:
                print_json({"url": server.url}, is_line=True)
            else:
                click.echo(f"exchange serves on {server.url}/exchange/v1 (Ctrl-C stops it)")

        uvloop.run(run_service(server, announce))
