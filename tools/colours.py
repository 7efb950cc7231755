"""Write the blocking modules from the awaiting ones: `python -m tools.colours [--check]`.

The awaiting module is the one that is edited. Its tokens are copied without `async` and `await`,
and with the names below replaced; where the two colours differ in more than that, the difference
is in a module that both import (`postroad.service`, `postroad.bus.runners`).
"""

from __future__ import annotations

import io
import subprocess
import sys
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "postroad"

# Awaiting module, blocking module.
MODULES: dict[str, str] = {}

NAMES = {
    "AutoResetEvent": "ThreadAutoResetEvent",
    "Service": "ThreadService",
    "asyncio": "time",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "connect_async": "connect",
    "run_async": "run",
    "fetch_async": "fetch",
    "awaiting": "blocking",
}

# In strings; the first that fits.
TEXTS = {
    "`AsyncBus`: the calls of the bus for code that awaits. `Bus`": (
        "`Bus`: the calls of the bus for code that blocks. `AsyncBus`"
    ),
    "code that awaits": "code that blocks",
    "from an event loop": "from a thread",
    "`async for ": "`for ",
    "a task that": "a thread that",
    "in an event loop": "in threads",
}


def convert(source: str, path: str) -> str:
    """Return the blocking colour of a module's text."""
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))

    def place(position: tuple[int, int]) -> int:
        return offsets[position[0] - 1] + position[1]

    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    result, done, brackets = [], 0, _brackets_of_awaitable(tokens)
    for index, token in enumerate(tokens):
        end = place(token.end)
        new = token.string
        if index in brackets:
            new = ""
        elif token.type == tokenize.NAME:
            if new in ("async", "await"):
                new, end = "", place(tokens[index + 1].start)
            else:
                new = _name(new)
        elif token.type == tokenize.STRING:
            fitting = [each for each in TEXTS.items() if each[0] in new]
            new = new.replace(*fitting[0]) if fitting else new.replace("Async", "")
        if new != token.string or end != place(token.end):
            result += [source[done : place(token.start)], new]
            done = end
    text = "".join([*result, source[done:]])
    header = f"# Written by `make generate` from {path}; edit that file.\n"
    return _format(header + text)


def _brackets_of_awaitable(tokens: list[tokenize.TokenInfo]) -> set[int]:
    """Find the tokens that make Awaitable[X] of X."""
    found, opened = set(), []
    for index, token in enumerate(tokens):
        if token.string == "[":
            is_awaitable = tokens[index - 1].string == "Awaitable"
            opened.append(is_awaitable)
            found |= {index - 1, index} if is_awaitable else set()
        elif token.string == "]" and opened.pop():
            found.add(index)
    return found


def _name(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    if name.startswith("Async") and name != "Async":
        return name.removeprefix("Async")
    return name.removeprefix("async_") if name.startswith("async_") else name


def _format(text: str) -> str:
    ruff = str(Path(sys.executable).parent / "ruff")
    for arguments in (["check", "--fix-only", "--select", "I,F401", "-q"], ["format", "-q"]):
        text = subprocess.run(
            [ruff, *arguments, "--stdin-filename", str(SOURCE / "generated.py"), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main() -> int:
    """Write the modules, or with --check compare them."""
    stale = []
    for awaiting, blocking in MODULES.items():
        text = convert((SOURCE / awaiting).read_text(), awaiting)
        target = SOURCE / blocking
        if target.exists() and target.read_text() == text:
            continue
        stale.append(blocking)
        if "--check" not in sys.argv:
            target.write_text(text)
    if stale and "--check" in sys.argv:
        print("not up to date, run `make generate`:", *stale)
        return 1
    print(f"{len(MODULES)} blocking modules are up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
