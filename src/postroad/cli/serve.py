"""`postroad serve NAME`: one service of the house in this process, for any supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from typing import Any

import click

from postroad import logs, trace
from postroad.cli.context import Application, pass_application
from postroad.cli.output import json_option, print_json, print_table
from postroad.cli.parts import PARTS, Part, PartContext, find_part
from postroad.cli.supervisor import READY_MARK
from postroad.errors import ConfigurationError
from postroad.service import Service

__all__ = ["serve"]


@click.command()
@click.argument("name", required=False)
@click.option("--child", "is_child", is_flag=True, hidden=True)
@json_option
@pass_application
def serve(application: Application, name: str | None, is_child: bool, as_json: bool) -> None:
    """Run one service in this process until Ctrl-C; without a name, list them.

    `postroad up` runs all of them; this is for systemd, containers and other supervisors.

    Example: postroad serve maintenance
    """
    if name is None:
        _list(as_json=as_json)
        return
    part = find_part(name)
    if part is None:
        raise click.UsageError(f"there is no service {name}; see `postroad serve`")
    if not part.is_there():
        raise ConfigurationError(
            f"service {name} needs {part.needs}", hint="pip install 'postroad[all]'"
        )
    logs.set_up(level=application.settings.logs.level, shape=application.settings.logs.shape)
    trace.open_telemetry()
    if is_child:
        told = json.loads(sys.stdin.readline())
        asyncio.run(_run(part, PartContext(application, told["dsn"], told), is_child=True))
        # What was done is durable; whatever a library still holds in threads must not keep us.
        sys.stdout.flush()
        os._exit(0)
    with application.database() as dsn:
        asyncio.run(_run(part, PartContext(application, dsn), is_child=False))


async def _run(part: Part, context: PartContext, *, is_child: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if is_child:
        _watch_parent(loop, stopping)
    service = part.service(context)
    async with service:
        if is_child:
            answer: dict[str, Any] = getattr(service, "answer", {})
            sys.stdout.write(READY_MARK + json.dumps(answer) + "\n")
            sys.stdout.flush()
        else:
            click.echo(f"{part.name} runs; Ctrl-C ends it", err=True)
        await _until(service, stopping)


async def _until(service: Service, stopping: asyncio.Event) -> None:
    ended = asyncio.create_task(service.join())
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if ended.done():
        ended.result()
    else:
        ended.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ended


def _watch_parent(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop when the supervisor's end of our input is closed: it is gone."""

    def wait() -> None:
        while sys.stdin.read(1024):
            pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=wait, daemon=True, name="watch parent").start()


def _list(*, as_json: bool) -> None:
    rows = [(part.name, part.what, part.is_there(), part.is_sample) for part in PARTS]
    if as_json:
        print_json(
            [dict(zip(("name", "what", "is_there", "is_sample"), row, strict=True)) for row in rows]
        )
    else:
        print_table(("service", "what", "installed", "sample"), rows)
