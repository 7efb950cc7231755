"""The page of all settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from postroad.settings import Settings, shown_duration
from tools.docs.markdown import head, table

INTRODUCTION = """
Every setting, with the name of its environment variable. A flag overrides the environment, the
environment the TOML file, the file the default. The file is the one given by
`--config-file` or `POSTROAD_CONFIG_FILE`, else `postroad.toml` in the current folder, else
`/etc/postroad/postroad.toml`. An unknown name is refused, in the environment and in the file.

Durations have a unit: `500ms`, `30s`, `5m`, `2h`, `1d`. Variables of libpq (`PGSSLMODE`,
`PGPASSFILE` …) are passed on. `postroad config show` prints the effective values and their sources.

```toml
database_url = "file:/run/secrets/postroad-database-url"

[bus]
lease = "1m"
```
"""


def page() -> str:
    """Return the page."""
    parts = [head("Settings", INTRODUCTION)]
    groups: dict[str, list[tuple[str, ...]]] = {}
    titles = {"": "The root"}
    for name, field, default in settings():
        group = name.rpartition(".")[0]
        if group:
            titles[group] = _title(group)
        groups.setdefault(group, []).append(
            (f"`{name}`", f"`{variable(name)}`", f"`{default}`", field.description or "")
        )
    for group, rows in groups.items():
        title = f"`[{group}]`: {titles[group]}" if group else titles[group]
        parts.append(f"## {title}\n")
        parts.append(table(("setting", "environment", "default", "meaning"), rows))
    return "\n".join(parts)


def _title(group: str) -> str:
    model: Any = Settings
    for name in group.replace(".<name>", "").split("."):
        model = _nested(model.model_fields[name].annotation)
    return (model.__doc__ or group).strip(".\n ")


def settings() -> Iterator[tuple[str, Any, str]]:
    """Return the dotted name, the field and the default of every setting."""
    yield from _walk(Settings, "")


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return "POSTROAD_" + name.upper().replace(".", "__")


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any, str]]:
    for name, field in model.model_fields.items():
        nested = _nested(field.annotation)
        if nested is not None:
            # A dictionary of sections: one for each name that the user chooses.
            inside = f"{name}.<name>" if get_origin(field.annotation) is dict else name
            yield from _walk(nested, f"{prefix}{inside}.")
        else:
            default = field.get_default(call_default_factory=True, validated_data={})
            yield f"{prefix}{name}", field, "required" if field.is_required() else _shown(default)


def _nested(kind: Any) -> Any:
    inner = [kind, *get_args(kind)]
    return next(
        (one for one in inner if isinstance(one, type) and issubclass(one, BaseModel)), None
    )


def _shown(value: Any) -> str:
    if value is None or value in ((), [], {}):
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown_duration(value) if isinstance(value, timedelta) else str(value)
