"""Load the settings: read every source, refuse unknown names, record the source of each value.

Order: flag, environment, TOML file, default. The file is the one named by `--config-file` or
`POSTROAD_CONFIG_FILE`, else `./postroad.toml`, else `/etc/postroad/postroad.toml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pydantic
from pydantic import SecretStr
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from postroad.errors import ConfigurationError
from postroad.settings import Settings, masked_database_url, shown_duration

PREFIX = "POSTROAD_"
CONFIG_FILE_VARIABLE = "POSTROAD_CONFIG_FILE"
CONFIG_FILES_DEFAULT = (Path("postroad.toml"), Path("/etc/postroad/postroad.toml"))
# Read by the test suite and the shipped pytest plugin, not by the server.
PREFIX_OF_TESTS = "POSTROAD_TEST_"


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


def load(flags: Mapping[str, Any] | None = None, config_file: Path | None = None) -> LoadedSettings:
    """Read all sources and return the frozen settings.

    Raises ConfigurationError for an unknown name, an invalid value, or a named file
    that does not exist.
    """
    given = _nested({name: value for name, value in (flags or {}).items() if value is not None})
    file = _config_file(config_file)
    _refuse_unknown_variables()

    class Loader(Settings, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX,
            env_nested_delimiter="__",
            env_ignore_empty=True,
            toml_file=file,
            frozen=True,
            extra="forbid",
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    try:
        loaded = Loader(**given)
        settings = Settings.model_validate(
            {name: getattr(loaded, name) for name in Settings.model_fields}
        )
    except pydantic.ValidationError as invalid:
        raise _configuration_error(invalid, file) from None
    except ValueError as unreadable:
        raise ConfigurationError(f"{file}: {unreadable}", hint="correct the TOML syntax") from None
    sources: dict[str, str] = {}
    in_file = TomlConfigSettingsSource(Loader)() if file else {}
    for source, values in (
        (f"file {file}", in_file),
        ("environment", EnvSettingsSource(Loader)()),
        ("flag", given),
    ):
        sources.update(dict.fromkeys(_names(values), source))
    return LoadedSettings(settings, sources)


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
        if not name.startswith(PREFIX) or name.startswith(PREFIX_OF_TESTS):
            continue
        if name == CONFIG_FILE_VARIABLE:
            continue
        if name.removeprefix(PREFIX).partition("__")[0] not in known:
            raise ConfigurationError(
                f"unknown setting in the environment: {variable}",
                hint="`postroad config show` lists every setting",
            )


def _configuration_error(invalid: pydantic.ValidationError, file: Path | None) -> Exception:
    # Inputs are left out: an invalid value may still be a secret.
    lines = []
    for fault in invalid.errors(include_input=False, include_url=False):
        name = ".".join(str(part) for part in fault["loc"])
        unknown = fault["type"] == "extra_forbidden"
        lines.append(f"unknown setting {name}" if unknown else f"{name}: {fault['msg']}")
    where = f" (environment or {file})" if file else ""
    return ConfigurationError(
        "; ".join(lines) + where, hint="`postroad config show` lists every setting"
    )


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `{"bus.lease": …}` to `{"bus": {"lease": …}}`."""
    result: dict[str, Any] = {}
    for name, value in flat.items():
        level = result
        *path, last = name.split(".")
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return result


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


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
        # Of a database URL only the password is hidden, any other secret completely.
        if name.endswith("database_url"):
            return masked_database_url(value.get_secret_value())
        return "***"
    if isinstance(value, timedelta):
        return shown_duration(value)
    if isinstance(value, dict | tuple) and not value:
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
