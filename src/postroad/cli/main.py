"""The root of the command: global options, lazily imported groups, errors.

A component adds its group with one line in `GROUPS`. A group is imported when it is called, so that
`postroad --version` imports none, and the error for a missing extra names it.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import click
import psycopg

from postroad import __version__
from postroad.backoff import CONNECTION_LOST
from postroad.cli.context import Application
from postroad.cli.output import EXIT_CODES, INTERRUPTED
from postroad.errors import Kind, PostroadError

# The line of each command in --help; the command is the object of its name in its module.
GROUPS = {
    "up": "Run everything on the embedded PostgreSQL.",
    "serve": "Run one service in this process.",
    "db": "Install and upgrade the schemas.",
    "bus": "Queues, consumers and messages.",
    "saga": "Sagas: list, show, cancel, retry.",
    "exchange": "Files handed to ERP instances.",
    "console": "Accounts of the console.",
    "alerts": "Alerts: open problems and sent notices.",
    "bridge": "Queues across databases and RabbitMQ.",
    "coordination": "Writer, Coordinator, Reader, Gateway: entity changes in phases.",
    "intake": "Files from SFTP servers into a store.",
    "find": "Find a message, file or event in all components.",
    "config": "Show the effective settings.",
    "doctor": "Report what is installed and what is missing.",
}


class LazyGroup(click.Group):
    """Finds commands by name in `GROUPS` and imports them when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names."""
        del ctx
        return list(GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        if cmd_name not in GROUPS:
            return None
        command: click.Command = resolve_name(f"postroad.cli.{cmd_name}:{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them, and explain the exit codes."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(GROUPS.items()))
        with formatter.section("Exit codes"):
            rows = [("0", "it worked")]
            rows += [(str(code), meaning) for code, meaning in EXIT_CODES.values()]
            formatter.write_dl([*rows, (str(INTERRUPTED), "interrupted by Ctrl-C")])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="postroad", message="%(prog)s %(version)s")
@click.option("--database-url", metavar="URL", help="The database; default: the embedded one.")
@click.option("--data-folder", type=click.Path(path_type=Path), help="The data folder.")
@click.option("--config-file", type=click.Path(path_type=Path), help="The TOML file of settings.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
@click.pass_context
def cli(
    ctx: click.Context,
    database_url: str | None,
    data_folder: Path | None,
    config_file: Path | None,
    log_level: str | None,
) -> None:
    """Move messages, files and records; nothing is lost, processed twice or stuck.

    Example: postroad up
    """
    flags = {"database_url": database_url, "data_folder": data_folder, "logs.level": log_level}
    application = Application(flags, config_file)
    ctx.obj = application
    application.set_up_logs()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit with its exit code; no traceback unless requested."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        result: Any = cli.main(args=given, prog_name="postroad", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except click.ClickException as wrong:
        if "--json" in given:
            _complain("usage", wrong.format_message(), None, as_json=True)
        else:
            wrong.show()
        sys.exit(wrong.exit_code)
    except Exception as failure:  # noqa: BLE001 - people get a sentence, --debug the traceback
        if "--debug" in given:
            traceback.print_exc()
        # The command with the option may not have been reached.
        sys.exit(_report(failure, as_json="--json" in given))


def _report(failure: Exception, *, as_json: bool) -> int:
    kind: Kind = "error"
    if isinstance(failure, PostroadError):
        code, message, hint, kind = failure.code, str(failure), failure.hint, failure.kind
    elif isinstance(failure, psycopg.Error):
        code, hint = failure.sqlstate or "database", failure.diag.message_hint
        message = failure.diag.message_primary or str(failure).strip() or type(failure).__name__
        kind = "unavailable" if isinstance(failure, CONNECTION_LOST) else "error"
    elif isinstance(failure, ModuleNotFoundError):
        code, message = "missing", f"the Python package {failure.name!r} is missing"
        hint, kind = "pip install 'postroad[all]'", "unavailable"
    else:
        code, message = "unexpected", f"{type(failure).__name__}: {failure}"
        hint = "run it again with --debug to see the traceback"
    _complain(code, message, hint, as_json=as_json)
    return EXIT_CODES[kind][0]


def _complain(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    if as_json:
        document = {"error": {"code": code, "message": message, "hint": hint}}
        click.echo(json.dumps(document, ensure_ascii=False), err=True)
        return
    click.secho(f"postroad: {message}", err=True, fg="red")
    if hint:
        click.echo(f"hint: {hint}", err=True)
