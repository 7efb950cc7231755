"""`postroad serve NAME`: one service in this process, for systemd and other supervisors."""

from __future__ import annotations

import asyncio

import click

from postroad import logs
from postroad.bus import spans
from postroad.cli.context import Application, command, run_service
from postroad.cli.output import print_json, print_table
from postroad.cli.parts import PARTS, Part, PartContext, find_part
from postroad.errors import ConfigurationError


@command()
@click.argument("name", required=False)
def serve(application: Application, name: str | None, as_json: bool) -> None:
    """Run one service in this process until Ctrl-C; without a name, list them.

    `postroad up` runs all of them; this is for systemd, containers and other supervisors.

    Example: postroad serve maintenance
    """
    if name is None:
        rows = [(part.name, part.what, part.is_there(), part.is_sample) for part in PARTS]
        if as_json:
            names = ("name", "what", "is_there", "is_sample")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
        else:
            print_table(("service", "what", "installed", "sample"), rows)
        return
    part = find_part(name)
    if part is None:
        raise click.UsageError(f"there is no service {name}; see `postroad serve`")
    if not part.is_there():
        raise ConfigurationError(
            f"service {name} needs {part.needs}", hint="pip install 'postroad[all]'"
        )
    logs.set_up(level=application.settings.logs.level, shape=application.settings.logs.shape)
    spans.record()
    with application.database() as dsn:
        asyncio.run(_run(part, PartContext(application, dsn), as_json=as_json))


async def _run(part: Part, context: PartContext, *, as_json: bool) -> None:
    service = part.service(context)

    def announce() -> None:
        if as_json:
            url = getattr(service, "url", None)
            print_json({"service": part.name} | ({"url": url} if url else {}), is_line=True)
        else:
            click.echo(f"{part.name} runs; Ctrl-C ends it", err=True)

    await run_service(service, announce)
