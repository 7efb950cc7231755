"""The data dictionary: views, row types and tables of schema mbus."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pglast
from pglast import ast
from pglast.stream import RawStream

from tools.docs.markdown import head, prose, table
from tools.docs.sql_source import SQL

INTRODUCTION = """
The objects of schema `mbus`. Views and row types are public. Tables are read and changed by the
functions only; they are described for readers of a dump or a query plan, and may
change between versions.
"""

README = "see README.md"
STORAGE = "see [how storage works](../concepts/storage.md)"
MEANINGS = Path(__file__).with_name("columns.toml")

BOOKKEEPING = """
## Bookkeeping of the migrator

`mbus.migration` has one row per numbered migration that was applied, `mbus.replaceable` one per
file of functions, views and grants with its checksum, `mbus.release` one per version that installed
or upgraded. `postroad db status` reads them.

## Tables and sequences of a queue

`$` cannot occur in the name of a queue or a consumer, so these names never collide. A cell is
a slot of the ring in one priority lane: `0`, `1`, … in the normal lane, `h0`, `l0` in the others.

| name | holds |
|---|---|
| `qt$<queue>$<cell>` | payload rows of a queue with one consumer, deleted by it |
| `ql$<queue>$<cell>` | payload rows of a queue with several consumers: a log |
| `qc$<queue>$<consumer>$<cell>` | ids that one of several consumers still has to read |
| `…$hint` | sequence: no row of that table that can be taken has a smaller id |
| `…$base` | sequence: no live row of that table, leased ones included, has a smaller id |
| `qs$<queue>$position` | sequence: the last id that was issued |
| `qs$<queue>$head`, `qs$<queue>$tail` | sequences: the oldest and the newest generation in use |
| `qs$<queue>$swept` | sequence: the last id when maintenance found nothing to do |

How they work together: [how storage works](../concepts/storage.md).
"""


@cache
def meanings() -> dict[str, dict[str, str]]:
    """Return what each column of a view or row type means, by the view and the column."""
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def page() -> str:
    """Return the page."""
    parts = [head("SQL views and tables", INTRODUCTION), "## Views\n"]
    parts.extend(_view(file) for file in sorted((SQL / "views").glob("*.sql")))
    parts.append("## Row types\n")
    parts.append(
        "`qt_model` is a message; `lease_model` is a leased message and has three columns more. "
        "`qt_model_jsonb`, `qt_model_text`, `qt_model_bytea` and the corresponding `lease_model_…` "
        "types differ only in the type of `data`.\n"
    )
    parts.extend(
        f"### `mbus.{name}`\n\n" + table(("column", "meaning"), _meant(name))
        for name in ("qt_model", "lease_model", "reply_model")
    )
    parts.append("## Tables\n")
    for file in sorted((SQL / "tables").glob("*.sql")):
        parts.extend(_tables(file))
    parts.append(BOOKKEEPING.strip() + "\n")
    return "\n".join(parts)


def _meant(name: str) -> list[tuple[str, str]]:
    return [(f"`{column}`", meaning) for column, meaning in meanings()[name].items()]


def _view(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    comment = re.search(r"comment on view mbus\.(\w+) is\s+'(.*?)';", text, re.DOTALL)
    if comment is None:
        raise ValueError(f"{file.name} lacks its `comment on view`")
    name, sentence = comment.groups()
    sentence = sentence.replace(".  ", ". ")
    return f"### `mbus.{name}`\n\n{sentence}\n\n" + table(("column", "meaning"), _meant(name))


def _tables(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    found = []
    for statement in pglast.parse_sql(text):
        node = statement.stmt
        if not isinstance(node, ast.CreateStmt) or node.partbound:
            continue
        comment = _comment_above(text, node.relation.relname)
        rows = [_column(one) for one in node.tableElts if isinstance(one, ast.ColumnDef)]
        rows += [
            (f"those of `mbus.{one.relation.relname}`", "", "")
            for one in node.tableElts
            if isinstance(one, ast.TableLikeClause)
        ]
        found.append(
            f"### `mbus.{node.relation.relname}`\n\n{prose(comment).replace(README, STORAGE)}\n\n"
            + table(("column", "type", "rules"), rows)
        )
    return found


def _comment_above(text: str, name: str) -> list[str]:
    lines = text[: text.index(f"create table mbus.{name} ")].splitlines()
    comment: list[str] = []
    for line in reversed(lines):
        if line.startswith("--"):
            comment.insert(0, line.removeprefix("--").removeprefix(" "))
        elif comment:
            break
    listed = [re.sub(r"^  (\w+)\s\s+(.*)$", r"- `\1`: \2", line) for line in comment]
    first = next((i for i, line in enumerate(listed) if line.startswith("- ")), None)
    return listed if first is None else [*listed[:first], "", *listed[first:]]


def _column(column: ast.ColumnDef) -> tuple[str, str, str]:
    kind = RawStream()(column.typeName)
    rules = [_rule(one) for one in column.constraints or ()]
    return f"`{column.colname}`", f"`{kind}`", ", ".join(filter(None, rules))


def _rule(rule: ast.Constraint) -> str:
    text = RawStream()(rule)
    kinds = {"CONSTR_NOTNULL": "not null", "CONSTR_PRIMARY": "primary key"}
    if rule.contype.name in kinds:
        return kinds[rule.contype.name]
    if rule.conname:
        return rule.conname.replace("_", " ")
    if rule.contype.name == "CONSTR_FOREIGN":
        return f"refers to `mbus.{rule.pktable.relname}`"
    if rule.contype.name == "CONSTR_IDENTITY":
        return "generated"
    return f"`{text.replace('DEFAULT', 'default')}`" if len(text) < 60 else ""
