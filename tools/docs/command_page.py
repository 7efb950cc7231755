"""The page of all commands, from the command tree itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from postroad.cli.main import cli
from postroad.cli.output import EXIT_CODES, INTERRUPTED
from tools.docs.markdown import head, table

INTRODUCTION = """
Every command of `postroad`. It needs the extra `server`. Results are tables; with `--json` they
are JSON. Commands that change data have `--dry-run`. The database is the one given by
`--database-url` or `POSTROAD_DATABASE_URL`, otherwise the embedded one.
"""


def page() -> str:
    """Return the page."""
    parts = [head("Commands", INTRODUCTION), "## Exit codes\n"]
    rows = [("`0`", "it worked")]
    rows += [(f"`{code}`", meaning) for code, meaning in EXIT_CODES.values()]
    parts.append(table(("code", "meaning"), [*rows, (f"`{INTERRUPTED}`", "interrupted by Ctrl-C")]))
    for path, context, command in commands():
        parts.append(_entry(path, context, command))
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Context, click.Command]]:
    """Return every command and group with its full name."""
    yield from _walk("postroad", click.Context(cli, info_name="postroad"), cli)


def _walk(
    path: str, context: click.Context, command: click.Command
) -> Iterator[tuple[str, click.Context, click.Command]]:
    yield path, context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                below = click.Context(child, info_name=name, parent=context)
                yield from _walk(f"{path} {name}", below, child)


def _entry(path: str, context: click.Context, command: click.Command) -> str:
    level = "##" if path.count(" ") < 2 else "###"
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    lines = [f"{level} `{path}`\n"]
    examples: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith(("Example:", "Examples:")):
            body = paragraph.partition(":")[2]
            examples += [line.strip() for line in body.splitlines() if line.strip()]
        else:
            lines.append(paragraph.strip() + "\n")
    if not isinstance(command, click.Group):
        usage = " ".join(command.collect_usage_pieces(context))
        lines.append(f"```text\n{path} {usage}\n```\n")
    if rows := list(_parameters(context, command)):
        lines.append(table(("option or argument", "meaning"), rows))
    if examples:
        lines.append("Example:\n\n```sh\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(lines)


def _parameters(context: click.Context, command: click.Command) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and "--help" in parameter.opts:
            continue
        shown = parameter.get_help_record(context)
        if shown is not None:
            yield f"`{shown[0]}`", shown[1]
        else:
            yield f"`{parameter.make_metavar(context)}`", getattr(parameter, "help", None) or ""
