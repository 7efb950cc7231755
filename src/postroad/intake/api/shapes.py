"""Bodies of requests, and answers that are not rows of a list. Answers contain no secrets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr

from postroad.intake.credentials import Credentials

Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
GivenText = Annotated[Text, Field(min_length=1)]
Patterns = Annotated[list[Text], Field(max_length=100)]
FileId = Annotated[int, Field(ge=1, lt=2**63)]
YEAR = timedelta(days=365)
# Settings of a server that can be null, and columns whose names differ from those of the API.
_NULLABLE = {"host_key", "scan_interval", "done_suffix", "move_to"}
_COLUMNS = {"stable_checks": "looks", "transfer_mode": "way"}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class CredentialsIn(_Body):
    """A password, or a private key with passphrase and certificate."""

    password: SecretStr | None = None
    private_key: SecretStr | None = None
    passphrase: SecretStr | None = None
    certificate: SecretStr | None = None

    def opened(self) -> Credentials:
        """Return the credentials in the form that the engine uses. Raises CredentialsInvalid."""
        return Credentials(**{name: one.get_secret_value() for name, one in self if one})


class ServerChange(_Body):
    """Changed settings of a server; settings that are not given stay. `looks`/`way` are aliases."""

    name: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[^/\x00-\x1f\x7f]+$")
    host: GivenText | None = None
    port: int | None = Field(None, ge=1, le=65535)
    username: GivenText | None = None
    credentials: CredentialsIn | None = None
    directory: GivenText | None = None
    is_active: bool | None = None
    host_key: Text | None = None
    trusts_first_key: bool | None = None
    scan_interval: timedelta | None = Field(None, gt=timedelta(0), le=YEAR)
    include: Patterns | None = None
    exclude: Patterns | None = None
    ignore: Patterns | None = None
    is_case_sensitive: bool | None = None
    max_depth: int | None = Field(None, ge=0, le=100)
    follows_links: bool | None = None
    stable_checks: int | None = Field(
        None, ge=1, le=10, validation_alias=AliasChoices("stable_checks", "looks")
    )
    minimum_age: timedelta | None = Field(None, ge=timedelta(0), le=YEAR)
    done_suffix: Annotated[GivenText, Field(pattern=r"^[^/\x00]+$")] | None = None
    after_import: Literal["leave", "delete", "move"] | None = None
    move_to: GivenText | None = None
    transfer_mode: Literal["stream", "temporary_file"] | None = Field(
        None, validation_alias=AliasChoices("transfer_mode", "way")
    )
    max_connections: int | None = Field(None, ge=1, le=64)

    def values(self) -> dict[str, Any]:
        """Return the given settings by the names of their columns, without the credentials."""
        given = self.model_dump(exclude_unset=True, exclude={"credentials"}).items()
        kept = [(name, one) for name, one in given if one is not None or name in _NULLABLE]
        return {_COLUMNS.get(name, name): value for name, value in kept}


class ServerIn(ServerChange):
    """A new server."""

    host: GivenText
    username: GivenText
    credentials: CredentialsIn


class HostKeyIn(_Body):
    """The key to trust; by default the one that the server presented."""

    host_key: Text | None = None


class FilesIn(_Body):
    """Files by their ids."""

    ids: Annotated[list[FileId], Field(min_length=1, max_length=1000)]


class TestOut(BaseModel):
    """Whether a login works."""

    __test__ = False

    works: bool
    problem: str | None = None
    hint: str | None = None
    host_key: str | None = None
    is_empty: bool | None = None


class Entry(BaseModel):
    """One entry of a folder at a server."""

    name: str
    kind: str
    size: int
    modified_at: datetime | None
    mode: str | None


class HistoryOut(BaseModel):
    """One event of a file."""

    at: datetime
    status: str
    note: str | None
