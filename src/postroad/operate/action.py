"""Actions: operations for operators, with the parameters that their functions declare.

The function is the declaration: its name is the name of the action, its docstring the help text.
Its keyword-only parameters are options, the others arguments; `Annotated[str, "help"]` has their
help. `connection` and the names in `Action.needs` are supplied by the interface that runs the
action: `by` (the user), `is_dry_run`.

An action runs in the caller's transaction and returns facts, so every action has a dry run.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from psycopg import AsyncConnection

from postroad.errors import PostroadError
from postroad.operate.resource import Resource, Row

Role = Literal["viewer", "operator", "admin"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument or option: its name, type, help and default."""

    name: str
    type: Any
    help: str
    default: Any
    is_required: bool
    is_option: bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a `Literal`, empty for any other type."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_many(self) -> bool:
        """Whether it takes several values."""
        return get_origin(self.type) in (Sequence, list, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """An operation for operators, usually on a row of a resource.

    `done` is the template of the report, with the arguments, the result of the function (as
    `result` if it is a number or a boolean), `{be}`, which is "is", "are", or "would be" in a dry
    run, and `{would}`, which is empty except in a dry run; `unchanged` is the report for a result
    of 0 or False. `when` has the values of columns with which the action is offered for a row; only
    an action with a title is offered in the console. Its command asks the `question` first, unless
    it is given `--yes`; with `loss`, the name of a count in its result, only if a dry run shows
    that something would be lost.
    """

    call: Callable[..., Awaitable[Any]]
    done: str
    on: Resource | None = None
    title: str = ""
    title_ru: str = ""
    _: KW_ONLY
    name: str = ""
    result: str = "count"
    unchanged: str = ""
    role: Role = "operator"
    needs: tuple[str, ...] = ()
    # The parameter for the object that the interface has opened.
    place: str = "connection"
    # The columns of a row by parameter; by default the first parameter gets the identity.
    columns: Mapping[str, str] = field(default_factory=dict)
    when: Mapping[str, Collection[Any]] = field(default_factory=dict)
    # The optional parameters that the console asks for, besides a reason.
    asked: tuple[str, ...] = ()
    # The settings that the console asks for with their present values: columns by parameter.
    present: Mapping[str, str] = field(default_factory=dict)
    # Whether the action sets all settings: None ends one; otherwise 0 or an empty text does.
    sets_all: bool = False
    question: str = ""
    # Parameters that are never recorded, such as payloads, and results shown once.
    secrets: tuple[str, ...] = ()
    loss: str = ""
    # The name of a count in its result; the console shows the count of a dry run before the action.
    counts: str = ""
    # The resources whose rows its parameters refer to, so that the console can offer them.
    offered: Mapping[str, Resource] = field(default_factory=dict)
    is_danger: bool = False
    # Whether it can be run on all rows that match a filter.
    is_bulk: bool = False

    @property
    def resource(self) -> Resource:
        """The resource whose rows it applies to."""
        if self.on is None:
            raise TypeError(f"{self.verb} does not apply to rows")
        return self.on

    @property
    def verb(self) -> str:
        """The name of the action, of its command, its audit entry and its test hook."""
        return self.name or self.call.__name__

    @property
    def summary(self) -> str:
        """The docstring of its function, without the errors that it raises."""
        return re.sub(r"\s*Raises\s[^.]*\.", "", inspect.getdoc(self.call) or "")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its arguments and options, as its function declares them."""
        hints = get_type_hints(self.call, include_extras=True)
        found = []
        for name, given in inspect.signature(self.call).parameters.items():
            if name == self.place or name in self.needs:
                continue
            kind, help_ = hints[name], ""
            if hasattr(kind, "__metadata__"):
                kind, help_ = get_args(kind)[0], kind.__metadata__[0]
            options = [one for one in get_args(kind) if one is not type(None)]
            if type(None) in get_args(kind) and len(options) == 1:
                kind = options[0]
            is_required = given.default is given.empty
            default = None if is_required else given.default
            is_option = given.kind is given.KEYWORD_ONLY
            found.append(Parameter(name, kind, help_, default, is_required, is_option))
        return tuple(found)

    def arguments_of(self, row: Row) -> dict[str, Any]:
        """Return the arguments that identify a row."""
        columns = self.columns or {self.parameters[0].name: self.resource.row_name}
        return {name: row[column] for name, column in columns.items()}

    def is_offered(self, row: Row) -> bool:
        """Return whether the state of a row allows it."""
        return all(row[column] in values for column, values in self.when.items())

    async def run(
        self,
        connection: AsyncConnection[Any] | None,
        supplied: Mapping[str, Any],
        /,
        **arguments: Any,
    ) -> Mapping[str, Any]:
        """Run it in the caller's transaction; returns its arguments and its result, by name.

        A supplied value is also the default of an option of the same name.
        """
        names = inspect.signature(self.call).parameters
        arguments |= {n: v for n, v in supplied.items() if n in names and arguments.get(n) is None}
        needed = {self.place: connection} if self.place in names else {}
        result = await self.call(**needed, **arguments)
        if is_dataclass(result):
            result = asdict(result)  # type: ignore[arg-type]
        elif result is None or isinstance(result, bool | int):
            is_counted = self.result == "count"
            result = {} if result is None else {self.result: int(result) if is_counted else result}
        elif isinstance(result, str):
            result = {"result": result}
        given = {
            name.rstrip("_"): value for name, value in arguments.items() if name not in self.needs
        }
        return {**given, **result}

    def report(self, facts: Mapping[str, Any], *, is_dry_run: bool) -> str:
        """Describe the result, or that of a dry run, in a sentence; `facts` are those of `run`."""
        value = facts.get(self.result, 1)
        is_plural = any(one.is_many and not one.is_option for one in self.parameters)
        be = "are" if is_plural or value != 1 else "is"
        text = self.done if value or not self.unchanged else self.unchanged
        would = "would be" if is_dry_run else ""
        return text.format_map({**facts, "be": would or be, "would": would and f"{would} "})

    async def run_on(
        self,
        connection: AsyncConnection[Any],
        supplied: Mapping[str, Any],
        row: Row,
        /,
        **arguments: Any,
    ) -> Mapping[str, Any]:
        """Run it for one row, as `run` does."""
        first, named = self.parameters[0], self.arguments_of(row)
        if first.is_many:
            named[first.name] = [named[first.name]]
        return await self.run(connection, supplied, **{**named, **arguments})

    async def run_on_matching(
        self,
        connection: AsyncConnection[Any],
        supplied: Mapping[str, Any],
        filters: Mapping[str, Any],
        **arguments: Any,
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Run it for all rows that match and whose state allows it; yield the result so far.

        The result is the `count` of rows and the values that the function returns: numbers are
        added, lists joined. Parameters that are also filters get the filters' values. If the action
        is refused because a row was changed in the meantime, the row counts as `skipped`. Each
        batch is one transaction unless the caller has begun one.
        """
        total: dict[str, Any] = {"count": 0}
        known = {**filters, **supplied}
        async for rows in self.resource.matching(connection, filters, self.when):
            wanted = [self.arguments_of(row) for row in rows]
            first = self.parameters[0]
            if first.is_many and wanted:
                wanted = [{first.name: [one[first.name] for one in wanted]}]
            async with connection.transaction():
                for named in wanted:
                    try:
                        async with connection.transaction():
                            facts = await self.run(connection, known, **named, **arguments)
                    except PostroadError as refused:
                        if refused.kind not in ("refused", "not_found"):
                            raise
                        total["skipped"] = total.get("skipped", 0) + 1
                        continue
                    count = len(named[first.name]) if first.is_many else 1
                    for name, value in {"count": count, **facts}.items():
                        if name in arguments:
                            total[name] = value
                        elif type(value) in (int, list) and (
                            first.is_many or not {name, f"{name}_"} & named.keys()
                        ):
                            total[name] = total[name] + value if name in total else value
            yield dict(total)
