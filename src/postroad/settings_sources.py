"""Load the settings: read every source, refuse unknown names, record the source of each value.

Order: flag, environment, TOML file, default. The file is the one named by `--config-file` or
`POSTROAD_CONFIG_FILE`, else `./postroad.toml`, else `/etc/postroad/postroad.toml`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic
from pydantic import SecretStr
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from postroad.errors import ConfigurationError
from postroad.settings import Settings, masked_database_url, shown_duration

PREFIX = "POSTROAD_"
CONFIG_FILE_VARIABLE = "POSTROAD_CONFIG_FILE"
CONFIG_FILES_DEFAULT = (Path("postroad.toml"), Path("/etc/postroad/postroad.toml"))
# Read by the test suite and the shipped pytest plugin, not by the server.
PREFIX_OF_TESTS = "POSTROAD_TEST_"
HINT = "`postroad config show` lists every setting"


@dataclass(frozen=True, slots=True)
class Effective:
    """One effective setting: its dotted name, its value for display, its source."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings and, for each name that was set, the source that takes precedence."""

    settings: Settings
    sources: Mapping[str, str]

    def effective(self) -> list[Effective]:
        """List every setting with its value, secrets masked, and its source."""
        return [
            Effective(name, _shown(name, value), self.sources.get(name, "default"))
            for name, value in _leaves(self.settings)
        ]


class _Environment(Settings, BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True
    )


def load(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> LoadedSettings:
    """Read all sources and return the frozen settings. Raises ConfigurationError."""
    file = _config_file(config_file)
    _refuse_unknown_variables()
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    try:
        if file is not None:
            in_file = tomllib.loads(file.read_text(encoding="utf-8"))
            _merge(merged, in_file, f"file {file}", sources)
        _merge(merged, EnvSettingsSource(_Environment)(), "environment", sources)
        for name, value in (flags or {}).items():
            if value is not None:
                *path, last = name.split(".")
                _merge(merged, {path[0]: {last: value}} if path else {last: value}, "flag", sources)
        settings = Settings.model_validate(merged)
    except pydantic.ValidationError as invalid:
        raise _configuration_error(invalid, file) from None
    except tomllib.TOMLDecodeError as wrong:
        raise ConfigurationError(f"{file}: {wrong}", hint="correct the TOML syntax") from None
    except (ValueError, OSError) as unreadable:
        raise ConfigurationError(str(unreadable)) from None
    return LoadedSettings(settings, sources)


def _merge(
    merged: dict[str, Any],
    values: Mapping[str, Any],
    source: str,
    sources: dict[str, str],
    prefix: str = "",
) -> None:
    """Let the values of a source replace those of earlier ones; record where each comes from."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            if not isinstance(merged.get(name), dict):
                merged[name] = {}
            _merge(merged[name], value, source, sources, f"{prefix}{name}.")
        else:
            merged[name] = value
            sources[f"{prefix}{name}"] = source


def _config_file(named: Path | None) -> Path | None:
    from_environment = os.environ.get(CONFIG_FILE_VARIABLE)
    wanted = named or (Path(from_environment) if from_environment else None)
    if wanted is not None:
        if not wanted.is_file():
            raise ConfigurationError(f"the configuration file {wanted} does not exist")
        return wanted
    return next((path for path in CONFIG_FILES_DEFAULT if path.is_file()), None)


def _refuse_unknown_variables() -> None:
    known = {name.upper() for name in Settings.model_fields}
    for variable in sorted(os.environ):
        name = variable.upper()
        is_ours = name.startswith(PREFIX) and not name.startswith(PREFIX_OF_TESTS)
        if not is_ours or name == CONFIG_FILE_VARIABLE:
            continue
        if name.removeprefix(PREFIX).partition("__")[0] not in known:
            message = f"unknown setting in the environment: {variable}"
            raise ConfigurationError(message, hint=HINT)


def _configuration_error(invalid: pydantic.ValidationError, file: Path | None) -> Exception:
    # Inputs are left out: an invalid value may still be a secret.
    lines = []
    for fault in invalid.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in fault["loc"])
        unknown = fault["type"] == "extra_forbidden"
        lines.append(f"unknown setting {name}" if unknown else f"{name}: {fault['msg']}")
    where = f" (environment or {file})" if file else ""
    return ConfigurationError("; ".join(lines) + where, hint=HINT)


def _leaves(model: pydantic.BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, pydantic.BaseModel):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict) and value:
            yield from ((f"{prefix}{name}.{key}", one) for key, one in value.items())
        else:
            yield f"{prefix}{name}", value


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, SecretStr):
        # In a database URL only the password is hidden; any other secret is hidden completely.
        if name.endswith("database_url"):
            return masked_database_url(value.get_secret_value())
        return "***"
    if isinstance(value, timedelta):
        return shown_duration(value)
    if isinstance(value, dict | tuple) and not value:
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
