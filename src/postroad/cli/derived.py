"""Commands derived from resources and actions (`postroad.operate`): list, show, do.

```
list_command(RESOURCE)   an option per filter, --sort, --after, --limit; with an ID: show that row
action_command(ACTION)   arguments and options of its function; --all: all that match the filters
```
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias, get_args

import click

from postroad.cli.context import Application, pass_application
from postroad.cli.output import (
    DRY_RUN,
    JSON,
    parse_duration,
    print_json,
    print_records,
    print_result,
    print_table,
)
from postroad.operate import Action, Column, Filter, Page, Parameter, Resource, Row
from postroad.postgres.calls import Connection

# Maximum rows of one page, which is also the default for lists that are usually short.
MAX_LIMIT = 100_000
LIMIT_HELP = "Maximum number of rows."


Do: TypeAlias = Callable[[Connection], Awaitable[Any]]
# `run(application, do, is_dry_run=False)` opens the component's database, awaits `do(connection)`,
# commits unless dry, and returns the result.
Runner: TypeAlias = Callable[..., Any]


def user() -> str:
    """Return the name of the user who runs the command, for histories and audit logs."""
    try:
        return f"{getpass.getuser()} (command line)"
    except (KeyError, OSError):
        # A user id without a name, in a container.
        return f"user {os.getuid()} (command line)"


def list_command(
    resource: Resource, run: Runner, name: str = "", *, argument: str = "", limit: int = 50
) -> click.Command:
    """Return the command that lists a resource, or shows one row of it.

    Its argument is the id of a row, or the filter that `argument` names.
    """

    @pass_application
    def command(application: Application, /, as_json: bool, **given: Any) -> None:
        if row_name := given.pop("row_name", None):
            _show(application, resource, run, row_name, as_json=as_json)
            return
        paging = {name: given.pop(name) for name in ("is_descending", "after", "limit")}
        paging["sort"] = given.pop("sort", None)

        async def read(connection: Connection) -> Page:
            page = await resource.page(connection, given, **paging)
            rows = page.rows
            while page.is_partial and (left := paging["limit"] - len(rows)):
                further = {**paging, "after": page.cursor, "limit": left}
                page = await resource.page(connection, given, **further)
                rows += page.rows
            if not rows:
                await resource.check_named(connection, given)
            return Page(rows, page.cursor)

        page = run(application, read)
        print_rows(resource, page.rows, as_json=as_json)
        if page.cursor is not None:
            click.echo(f"there are more: --after {page.cursor}", err=True)

    sortable, size = resource.sort_keys, click.IntRange(1, MAX_LIMIT)
    parameters: list[click.Parameter] = [
        click.Argument(
            [argument or "row_name"], required=False, metavar=f"[{(argument or 'id').upper()}]"
        ),
        *(_filter_option(one) for one in resource.filters if one.name != argument),
        *([click.Option(["--sort"], type=click.Choice(sortable))] if len(sortable) > 1 else []),
        click.Option(["--descending/--ascending", "is_descending"], default=None),
        click.Option(["--after"], metavar="CURSOR", help="The page after this cursor."),
        click.Option(["--limit"], type=size, default=limit, show_default=True, help=LIMIT_HELP),
        JSON,
    ]
    help_ = f"{resource.summary}\n\nExample: {resource.example}"
    return click.Command(name or resource.plural, callback=command, params=parameters, help=help_)


def action_command(action: Action, run: Runner) -> click.Command:
    """Return the command that runs an action."""

    @pass_application
    def command(application: Application, /, is_dry_run: bool, as_json: bool, **given: Any) -> None:
        is_all = given.pop("is_all", False)
        target = action.parameters[0]
        is_named = bool(given[target.name]) or not (target.is_required or is_all)
        rows = action.on.plural.replace("_", " ") if action.on else ""
        if action.is_bulk:
            if is_named == is_all:
                raise click.UsageError(f"specify the {rows}, or use --all")
            _refuse_unused(action, given, is_all=is_all)
        must_ask = action.question and not given.pop("is_sure") and not is_dry_run

        async def do(connection: Connection, is_trial: bool = is_dry_run) -> Mapping[str, Any]:
            supplied = {"by": user(), "is_dry_run": is_trial}
            if is_all:
                if not is_dry_run:
                    # Each batch commits: one transaction for all rows would hold locks for long.
                    await connection.set_autocommit(True)
                return await _run_on_all(action, connection, supplied, given)
            arguments = {one.name: _given(one, given[one.name]) for one in action.parameters}
            return await action.run(connection, supplied, **arguments)

        if must_ask:
            trial = partial(do, is_trial=True)
            known = run(application, trial, is_dry_run=True) if action.loss else given
            if not action.loss or known[action.loss]:
                click.confirm(action.question.format_map(known), abort=True, err=True)
        facts = run(application, do, is_dry_run=is_dry_run)
        if is_all:
            sentence = f"{facts['count']} {rows} {'would be' if is_dry_run else 'are'} changed"
        else:
            sentence = action.report(facts, is_dry_run=is_dry_run)
        document = {"status": "OK", **facts, "is_dry_run": is_dry_run}
        print_result(document, sentence, as_json=as_json)

    parameters: list[click.Parameter] = [
        _parameter(one, is_optional=action.is_bulk) for one in action.parameters
    ]
    if action.is_bulk and action.on is not None:
        taken = {one.name for one in action.parameters}
        help_ = "All rows that match the filters."
        parameters.append(click.Option(["--all", "is_all"], is_flag=True, help=help_))
        parameters += [_filter_option(one) for one in action.on.filters if one.name not in taken]
    if action.question:
        parameters.append(click.Option(["--yes", "is_sure"], is_flag=True, help="Do not ask."))
    parameters += [DRY_RUN, JSON]
    return click.Command(action.verb, callback=command, params=parameters, help=action.summary)


def _refuse_unused(action: Action, given: Mapping[str, Any], *, is_all: bool) -> None:
    """Refuse filters together with the id of a row, and options for one row together with --all."""
    filters = {one.name for one in action.resource.filters}
    if is_all:
        unused = set(action.columns) - filters - {action.parameters[0].name}
    else:
        unused = filters - {one.name for one in action.parameters}
    for name in sorted(unused):
        if given[name]:
            hint = "cannot be combined with --all" if is_all else "needs --all"
            raise click.UsageError(f"--{name.replace('_', '-')} {hint}")


async def _run_on_all(
    action: Action, connection: Connection, supplied: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the action for all rows that match; an option that is also a filter selects rows."""
    facts: Mapping[str, Any] = {"count": 0}
    filters = {one.name: given[one.name] for one in action.resource.filters}
    named = {*action.columns, *filters, action.parameters[0].name}
    rest = {one.name: given[one.name] for one in action.parameters if one.name not in named}
    async for so_far in action.run_on_matching(connection, supplied, filters, **rest):
        facts = so_far
        if sys.stderr.isatty():
            click.echo(f"\r{facts['count']} so far", err=True, nl=False)
    return {**facts, "matched": {name: v for name, v in filters.items() if v is not None}}


def print_rows(resource: Resource, rows: Sequence[Row], *, as_json: bool) -> None:
    """Print rows: all columns as JSON, the listed ones as a table."""
    advice = f"; {resource.advice}" if resource.advice else ""
    empty = f"there are no {resource.plural.replace('_', ' ')}{advice}"
    if not as_json:
        rows = [{one.name: _cell(one, row) for one in resource.listed} for row in rows]
    print_records(rows, as_json=as_json, empty=empty)


def _cell(column: Column, row: Row) -> Any:
    value = row[column.name]
    return column.null if value is None and column.null else value


def _show(
    application: Application, resource: Resource, run: Runner, row_name: str, *, as_json: bool
) -> None:
    row = run(application, lambda connection: resource.one(connection, row_name))
    if as_json:
        print_json(row)
        return
    columns = {column.name: column for column in resource.columns}
    fields, tables = [], []
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables.append((name, value))
        elif name in columns:
            fields.append((name.replace("_", " "), _cell(columns[name], row)))
        elif not isinstance(value, dict):
            fields.append((name.replace("_", " "), value))
    print_table(("field", "value"), fields)
    for name, rows in tables:
        names = [one.name for one in resource.parts.get(name, ())] or list(rows[0])
        body = [[one[name] for name in names] for one in rows]
        print_table(names, body, title=f"\n{name}")


def resource_group(
    resource: Resource, actions: Iterable[Action], run: Runner, name: str = "", *, limit: int = 50
) -> click.Group:
    """Return the group of a resource: its list, alone or as `list`, `show`, and its actions."""
    name = name or resource.plural
    listing = list_command(resource, run, "list", limit=limit)

    @pass_application
    def show(application: Application, /, row_name: str, as_json: bool) -> None:
        _show(application, resource, run, row_name, as_json=as_json)

    @click.pass_context
    def alone(ctx: click.Context, as_json: bool) -> None:
        if ctx.invoked_subcommand is None:
            ctx.invoke(listing, as_json=as_json)

    rows = resource.plural.replace("_", " ").capitalize()
    example = f"Example: postroad {resource.component} {name}"
    group = click.Group(
        name,
        callback=alone,
        params=[JSON],
        help=f"{rows}: list, show, change. Alone: list them.\n\n{example} --json",
        invoke_without_command=True,
    )
    group.add_command(listing)
    help_ = f"Show one {resource.noun} with all its fields.\n\n{example} show ID"
    arguments: list[click.Parameter] = [click.Argument(["row_name"], metavar="ID"), JSON]
    group.add_command(click.Command("show", callback=show, params=arguments, help=help_))
    for action in actions:
        if action.on is resource:
            group.add_command(action_command(action, run))
    return group


def _given(one: Parameter, value: Any) -> Any:
    """Return the value, or the default of a repeatable option that was not passed."""
    return one.default if value == () and one.is_option else value


def _filter_option(one: Filter) -> click.Option:
    kind = click.Choice(list(one.choices)) if one.choices else None
    flag = f"--{one.name.replace('_', '-')}"
    return click.Option(
        [flag], type=kind, is_flag=one.is_flag, help=one.help or f"Only with this {one.name}."
    )


def integer(value: str) -> int:
    """Return an integer that fits the database's type, whose range the help does not show."""
    number: int = click.IntRange(-(2**63), 2**63 - 1)(click.INT(value))
    return number


def _parameter(one: Parameter, *, is_optional: bool) -> click.Parameter:
    kind: Any = one.type
    if one.is_many:
        kind = get_args(kind)[0]
    if one.choices:
        kind = click.Choice(one.choices, case_sensitive=False)
    elif kind is timedelta:
        kind = parse_duration
    elif kind is int:
        kind = integer
    if not one.is_option:
        many = -1 if one.is_many else 1
        needed = one.is_required and not is_optional
        label = one.name.rstrip("_").upper()
        if one.choices:
            label = f"{{{'|'.join(one.choices)}}}"
        shown = label if needed else f"[{label}]"
        return click.Argument([one.name], type=kind, nargs=many, required=needed, metavar=shown)
    word = re.sub("^(is|may|has)_", "", one.name).replace("_", "-")
    # For click, None is a default, too.
    given: dict[str, Any] = {"required": True} if one.is_required else {"default": one.default}
    if kind is bool:
        flags = f"--{word}" if one.default is False else f"--{word}/--no-{word}"
        return click.Option([flags, one.name], is_flag=True, help=one.help, **given)
    if one.is_many:
        return click.Option(
            [f"--{word.removesuffix('s')}", one.name], type=kind, multiple=True, help=one.help
        )
    metavar = "DURATION" if one.type is timedelta else None
    return click.Option([f"--{word}", one.name], type=kind, metavar=metavar, help=one.help, **given)
