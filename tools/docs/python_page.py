"""The page of the Python interface: the public names of the bus, coordination and testing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import postroad.bus
import postroad.coordination
import postroad.testing
from postroad.errors import PostroadError
from tools.docs.markdown import head

INTRODUCTION = """
The public names of `postroad.bus`, which needs only the driver psycopg, of
`postroad.coordination` and of `postroad.testing`. `AsyncBus`, `AsyncWorker`, `AsyncSubscription`
and `AsyncMaintenance` have the same methods and arguments as the classes without `Async`; the
methods are awaited. Errors are listed on [their own page](errors.md).
"""


def page() -> str:
    """Return the page."""
    parts = [head("Python", INTRODUCTION)]
    for module in (postroad.bus, postroad.coordination, postroad.testing):
        parts.append(f"## `{module.__name__}`\n")
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("Async") or (
                isinstance(value, type) and issubclass(value, PostroadError)
            ):
                continue
            parts.append(_entry(name, value))
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    kinds = _type_arguments(value)
    declared = _declaration(name, value, kinds)
    lines = [f"### `{name}`\n", f"```python\n{declared}\n```\n", _text(value)]
    if isinstance(value, type):
        for method, function in _methods(value):
            lines.append(f"#### `{name}.{method}`\n")
            lines.append(f"```python\n{_declaration(method, function, kinds)}\n```\n")
            lines.append(_text(function))
    return "\n".join(lines)


def _type_arguments(value: Any) -> dict[str, str]:
    """Return what a class has in place of the type variables of its generic base."""
    bases = vars(value).get("__orig_bases__", ()) if isinstance(value, type) else ()
    return {
        variable.__name__: re.sub(r"\b[a-z_]\w*\.|<class '|'>", "", repr(kind))
        for base in bases
        for variable, kind in zip(
            getattr(get_origin(base), "__parameters__", ()), get_args(base), strict=False
        )
    }


def _methods(value: type) -> list[tuple[str, Any]]:
    # Parts of one class that both colours share are bases in the same package.
    package = value.__module__.rpartition(".")[0]
    classes = [value]
    if not issubclass(value, Exception):
        classes = [each for each in value.__mro__ if each.__module__.rpartition(".")[0] == package]
    found = {
        name: function
        for each in reversed(classes)
        for name, member in vars(each).items()
        if inspect.isfunction(function := getattr(member, "__func__", member))
        and not name.startswith("_")
        and function.__doc__
    }
    return list(found.items())


def _declaration(name: str, value: Any, kinds: Mapping[str, str]) -> str:
    awaited = "async " if inspect.iscoroutinefunction(value) else ""
    keyword = "class" if isinstance(value, type) else f"{awaited}def"
    if isinstance(value, type) and issubclass(value, Exception):
        signature: Any = inspect.signature(value.__init__)
    else:
        signature = inspect.signature(value)
    own = [one for one in signature.parameters.values() if one.name != "self"]
    result = "" if keyword == "class" else f" -> {_plain(signature.return_annotation)}"
    shown = [_parameter(one) for one in own]
    for variable, kind in kinds.items():
        *shown, result = (re.sub(rf"\b{variable}\b", kind, text) for text in (*shown, result))
    if any(one.kind is one.KEYWORD_ONLY for one in own):
        place = next(i for i, one in enumerate(own) if one.kind is one.KEYWORD_ONLY)
        if not any(one.kind is one.VAR_POSITIONAL for one in own):
            shown.insert(place, "*")
    line = f"{keyword} {name}({', '.join(shown)}){result}"
    if len(line) <= 88:
        return line
    return f"{keyword} {name}(\n    " + ",\n    ".join(shown) + f",\n){result}"


def _parameter(one: inspect.Parameter) -> str:
    star = "*" if one.kind is one.VAR_POSITIONAL else ""
    kind = "" if one.annotation is one.empty else f": {_plain(one.annotation)}"
    if one.default is one.empty:
        return f"{star}{one.name}{kind}"
    return f"{star}{one.name}{kind} = {_default(one.default)}"


def _default(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> str:
    if value is inspect.Signature.empty:
        return "None"
    text = value if isinstance(value, str) else repr(value)
    text = re.sub(r"<factory>|<class '(.*?)'>", r"\1", text)
    return re.sub(r"\b(?:datetime|postroad(?:\.\w+)+)\.(?=[A-Za-z])", "", text)


def _text(value: Any) -> str:
    text = inspect.cleandoc(value.__doc__ or "")
    listed = re.sub(r"^Attributes:\n", "", text, flags=re.MULTILINE)
    listed = re.sub(r"^    (\w+): ", r"- `\1`: ", listed, flags=re.MULTILINE)
    listed = re.sub(r"^        (?=\S)(?!.*```)", "  ", listed, flags=re.MULTILINE)
    return listed + "\n"
