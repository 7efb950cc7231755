"""The services of the exchange: its server, and sample partners that use it over HTTP."""

from __future__ import annotations

from datetime import timedelta

from postroad.cli.exchange import exchange_root
from postroad.cli.parts import PartContext
from postroad.cli.sample import SampleListener
from postroad.exchange import operations
from postroad.exchange.errors import ClientExists
from postroad.exchange.sample import SampleErp, SampleMobileClient
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.service import Service, Together

# Two instances compete for the first database, the second database has its own instance.
DATABASES = {"north": 2, "south": 1}
ORDER_INTERVAL = timedelta(seconds=1)
# Events of the components; without a consumer they would accumulate.
EVENT_QUEUES = ("exchange_events", "file_events")


def exchange(context: PartContext) -> Service:
    """Create the server."""
    settings = context.application.settings
    return ExchangeServer(
        context.dsn,
        exchange_root(context.application),
        settings.exchange,
        is_pooled=settings.database.is_pooled,
        http=settings.http,
        publish=context.publish("/exchange"),
    )


def partners(context: PartContext) -> Service:
    """Create a mobile client for each database."""
    url = _url(context)
    services: list[Service] = []
    for database in DATABASES:
        token = _token(context.dsn, f"mobile-{database}", database)
        services.append(SampleMobileClient(database, url=url, token=token, interval=ORDER_INTERVAL))
    return Together("sample partners", [*services, SampleListener(context.dsn, EVENT_QUEUES)])


def erps(context: PartContext) -> Service:
    """Create the ERP instances."""
    url, folder = _url(context), context.application.data_folder / "sample"
    services: list[Service] = []
    for database, instances in DATABASES.items():
        token = _token(context.dsn, f"erp-{database}", database)
        services += [
            SampleErp(database, url=url, token=token, file=folder / f"erp-{database}.sqlite")
            for _ in range(instances)
        ]
    return Together("sample ERPs", services)


def _url(context: PartContext) -> str:
    url = context.mounts.url if context.mounts is not None else None
    return url or f"http://127.0.0.1:{context.application.settings.exchange.port}"


def _token(dsn: str, client: str, database: str) -> str:
    """Add the client, or renew its token, which only an ended process has used."""
    try:
        made = run_blocking(
            dsn, operations.add_client, client, databases=[database], recipients=[client]
        )
    except ClientExists:
        return run_blocking(dsn, operations.renew_client, client)["token"]
    return made.token
