"""Every command on a page exists and takes its options, and every guide executes something."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
import pytest

from postroad.cli.main import cli
from postroad.cli.parts import find_part
from tests.docs.snippets import DOCS, ROOT, commands, snippets

PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])
# Decisions describe the commands of their time.
HISTORY = ("decisions", "seeds")
# Pages of tutorials/ and howto/ without an executed block, and why.
NOT_EXECUTED = {
    "howto/migrate-from-mbus.md": "its commands are run by test_migrate_mbus.py",
}
_BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```[^\n]*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]*postroad [^`\n]+)`")
# What the reader replaces: `ID`, `$PORT`, `$(cat worker.pid)`.
_PLACEHOLDER = re.compile(r"[A-Z\u0410-\u042f_]+|\$\w+")
# What the changelog says has been removed.
REMOVED = ("postroad bridge shards add",)
# Where a command ends for a shell, outside of quotes.
_ENDS = "|&;<>)"


@dataclass(frozen=True)
class Named:
    """A command as a page names it."""

    page: str
    line: int
    text: str
    is_complete: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


def named(page: Path) -> Iterator[Named]:
    """Return the commands of a page: of blocks, complete, and of the text, in part."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(DOCS) if page.is_relative_to(DOCS) else page.name)

    for found in _BLOCK.finditer(text):
        _, language, body = found.groups()
        if language in ("sh", "console"):
            script = (
                "\n".join(each for each, _ in commands(body)) if language == "console" else body
            )
            for each in of_script(script):
                yield Named(name, text.count("\n", 0, found.start()) + 1, each, is_complete=True)
    prose = _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in _INLINE.finditer(prose):
        for each in of_script(found[1]):
            yield Named(name, prose.count("\n", 0, found.start()) + 1, each, is_complete=False)


def of_script(script: str) -> Iterator[str]:
    """Return each use of `postroad` in a script, from the name to the end of its line."""
    for line in re.sub(r"(^| )#.*", "", script.replace("\\\n", " "), flags=re.M).splitlines():
        # First in the line, after variables or another command; not in `pip install postroad`.
        for found in re.finditer(
            r"(?:^ *|[|;&(] *|\b(?:until|time|exec) |=\S+ )(postroad [\w-])", line
        ):
            yield line[found.start(1) :]


def arguments(text: str) -> list[str]:
    """Split a command as a shell does and leave out what follows it."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_ENDS)
    lexer.whitespace_split = True
    found: list[str] = []
    for word in lexer:
        if set(word) <= set(_ENDS):
            if word[0] == ">" and found[-1] == "2":
                found.pop()
            break
        found.append(word)
    return found[1:]


def refusal(each: Named) -> str | None:
    """Return what is wrong with a command, by its own parser."""
    command: click.Command = cli
    group: click.Group = cli
    rest = arguments(each.text)
    try:
        while isinstance(command, click.Group):
            group = command
            context = click.Context(group)
            _, rest, _ = group.make_parser(context).parse_args(rest)
            if not rest or not re.match(r"[a-z]", rest[0]):
                needs_command = each.is_complete and not group.invoke_without_command
                return "incomplete" if needs_command else None
            _, child, rest = group.resolve_command(context, rest)
            assert child is not None
            command = child
        parsed = command.make_context(command.name, list(rest), resilient_parsing=False)
    except click.exceptions.Exit:
        return None
    except click.MissingParameter as missing:
        return missing.format_message() if each.is_complete else None
    except click.BadParameter as bad:
        return None if is_placeholder(bad) else bad.format_message()
    except click.BadOptionUsage as wrong:
        # `--reason` without its value is complete enough for a sentence.
        is_cut = not each.is_complete and "requires an argument" in wrong.message
        return None if is_cut else wrong.format_message()
    except click.UsageError as wrong:
        return wrong.format_message()
    name = parsed.params.get("name")
    if group is not cli or command.name != "serve" or not name or _PLACEHOLDER.fullmatch(name):
        return None
    return None if find_part(name) else f"no service {name}"


def is_placeholder(bad: click.BadParameter) -> bool:
    """Whether a value is a file of the reader's, which does not exist here, or `ID`, or `$PORT`."""
    value = re.match(r"'(.+)' is not a valid", bad.message)
    is_file = bad.param is not None and isinstance(bad.param.type, click.Path | click.File)
    return is_file or (value is not None and _PLACEHOLDER.fullmatch(value[1]) is not None)


@cache
def all_named() -> list[Named]:
    return [each for page in PAGES if page.parent.name not in HISTORY for each in named(page)]


def test_every_command_on_a_page_exists_and_takes_its_options() -> None:
    found = [each for each in all_named() if each.text not in REMOVED]
    assert len(found) > 700
    wrong = [f"{each}\n    {reason}" for each in found if (reason := refusal(each))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "text", ["postroad bus tial orders", "postroad bus tail orders --cuont 1", "postroad bus tail"]
)
def test_a_wrong_command_is_found(text: str) -> None:
    assert refusal(Named("page", 1, text, is_complete=True))


def test_every_tutorial_and_guide_executes_something() -> None:
    pages = [page for folder in ("tutorials", "howto") for page in (DOCS / folder).glob("*.md")]
    idle = {str(page.relative_to(DOCS)) for page in pages if not snippets(page)}
    assert idle == set(NOT_EXECUTED)
