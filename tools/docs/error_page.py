"""The page of all errors: code, class, whether trying again can help, what to do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import postroad
from postroad.cli.output import EXIT_CODES
from postroad.errors import PostroadError
from tools.docs.markdown import anchor, head, table
from tools.docs.sql_source import errors as codes_of
from tools.docs.sql_source import public

INTRODUCTION = """
Schema `mbus` raises its own errors with an SQLSTATE `MBxxx`, a message and a hint. A call that
raises one has changed nothing, and the transaction must be rolled back as after any error. In
Python each is a class, with the driver's error as its cause. Distinguish errors by code, not text.

**Retryable** means that the same call may succeed a moment later without any intervention.
Other errors (a lost connection, a deadlock, a missing privilege) remain errors
of PostgreSQL and the driver.
"""

# Most components define errors in a module `errors`; these define them beside their only user.
ELSEWHERE = ("postroad.vault", "postroad.web.server", "postroad.cli.up_lock")
ADVICE = Path(__file__).with_name("advice.toml")


@cache
def advice() -> dict[str, str]:
    """Return what to do about each error, by its code."""
    return tomllib.loads(ADVICE.read_text(encoding="utf-8"))


@cache
def families() -> frozenset[str]:
    """Import every module that defines errors, and return their names."""
    found = (module.name for module in pkgutil.walk_packages(postroad.__path__, "postroad."))
    names = frozenset(name for name in found if name.endswith(".errors")) | {*ELSEWHERE}
    for name in names:
        importlib.import_module(name)
    return names


def leaves() -> list[type[PostroadError]]:
    """Return every error class that is raised: those without subclasses or with advice, by code."""
    found = {leaf.code: leaf for leaf in _leaves(PostroadError)}
    return sorted(found.values(), key=lambda leaf: (not _is_sqlstate(leaf), leaf.code))


def _leaves(family: type[PostroadError]) -> Iterator[type[PostroadError]]:
    for child in family.__subclasses__():
        # Errors that tests define are not documented.
        if child.__module__ not in families():
            continue
        if not child.__subclasses__() or ("code" in vars(child) and child.code in advice()):
            yield child
        yield from _leaves(child)


def _is_sqlstate(leaf: type[PostroadError]) -> bool:
    return leaf.code.startswith("MB")


def page() -> str:
    """Return the page."""
    found = leaves()
    parts = [head("Errors", INTRODUCTION), "## All at a glance\n"]
    parts.append(
        table(
            ("code", "class", "retryable", "exit code", "meaning"),
            (
                (
                    f"[`{leaf.code}`](#{anchor(leaf.code)})",
                    f"`{leaf.__name__}`",
                    "yes" if leaf.retryable else "no",
                    str(EXIT_CODES[leaf.kind][0]),
                    _meaning(leaf),
                )
                for leaf in found
            ),
        )
    )
    parts.append("## SQLSTATEs of schema mbus\n")
    parts += [_entry(leaf) for leaf in found if _is_sqlstate(leaf)]
    parts.append("## Errors raised in Python\n")
    parts += [_entry(leaf) for leaf in found if not _is_sqlstate(leaf)]
    return "\n".join(parts)


def _meaning(leaf: type[PostroadError]) -> str:
    return inspect.cleandoc(leaf.__doc__ or "").splitlines()[0]


def _entry(leaf: type[PostroadError]) -> str:
    lines = [f"### {leaf.code}\n", f"`{leaf.__module__}.{leaf.__name__}`. {_meaning(leaf)}\n"]
    raisers = [name for name in public() if leaf.code in codes_of(name)]
    if raisers:
        links = (f"[`{one}`](sql-functions.md#{anchor(one)})" for one in raisers)
        lines.append(f"Raised by {', '.join(links)}.\n")
    lines.append(f"**What to do.** {advice()[leaf.code].strip()}\n")
    return "\n".join(lines)
