"""The types of settings, and the base class of their sections."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any) -> timedelta:
    """Parse `500ms`, `30s`, `5m`, `2h`, `1d`; a number without a unit is refused."""
    if isinstance(value, str):
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", value.strip())
        if found:
            return timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    elif isinstance(value, timedelta):
        return value
    raise ValueError("use a number with a unit, such as 500ms, 30s, 5m or 2h")


def shown_duration(value: timedelta) -> str:
    """Format a duration the way it is parsed."""
    seconds = value.total_seconds()
    for unit, size in sorted(_UNITS.items(), key=lambda unit: -unit[1]):
        if seconds >= size and (seconds / size).is_integer():
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be positive")
    return value


Duration = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(_positive)]


Port = Annotated[int, Field(ge=0, le=65535)]


def _from_file(value: Any) -> Any:
    """Accept a secret, or `file:/path` for a secret in a file."""
    text = value.get_secret_value() if isinstance(value, SecretStr) else value
    if isinstance(text, str) and text.startswith("file:"):
        path = Path(text.removeprefix("file:"))
        try:
            return path.read_text(encoding="utf-8").strip()
        except OSError as failure:
            raise ValueError(f"cannot read {path}: {failure.strerror}") from failure
    return text


Secret = Annotated[SecretStr, BeforeValidator(_from_file)]


def _database_url(value: SecretStr) -> SecretStr:
    try:
        conninfo_to_dict(value.get_secret_value())
    except ProgrammingError:
        # libpq repeats the text it could not parse, which may contain a password.
        raise ValueError("not a connection string that libpq understands") from None
    return value


DatabaseUrl = Annotated[Secret, AfterValidator(_database_url)]


def masked_database_url(url: str) -> str:
    """Return a connection string without its password, for display."""
    parts = conninfo_to_dict(url)
    for secret in ("password", "sslpassword", "oauth_client_secret"):
        if secret in parts:
            parts[secret] = "***"
    return make_conninfo("", **parts)


class Section(BaseModel):
    """One group of settings: frozen, unknown names refused, described by docstrings."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def override(self, **given: Any) -> Self:
        """Return the settings with command-line options; absent or empty ones are ignored."""
        passed = {name: value for name, value in given.items() if value not in (None, "")}
        return self.model_copy(update=passed)
