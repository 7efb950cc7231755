"""Bodies of requests and answers. Answers are derived from the entities; none holds a secret."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, create_model

from postroad.intake.credentials import Credentials
from postroad.intake.models import FileHistory, ImportedFile, IntakeBase, SftpServer

Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
GivenText = Annotated[Text, Field(min_length=1)]
Patterns = Annotated[list[Text], Field(max_length=100)]
YEAR = timedelta(days=365)
# Settings of a server that can be null, and the columns whose names are older than the API's.
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
        """Return them as the engine uses them. Raises CredentialsInvalid."""
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
        """Return the given settings by column, without the credentials."""
        given = self.model_dump(exclude_unset=True, exclude={"credentials"})
        return {
            _COLUMNS.get(name, name): value
            for name, value in given.items()
            if value is not None or name in _NULLABLE
        }


class ServerIn(ServerChange):
    """A new server."""

    host: GivenText
    username: GivenText
    credentials: CredentialsIn


class HostKeyIn(_Body):
    """The key to trust; by default the one that the server showed."""

    host_key: Text | None = None


class FilesIn(_Body):
    """Files by their ids."""

    ids: Annotated[
        list[Annotated[int, Field(ge=1, lt=2**63)]], Field(min_length=1, max_length=1000)
    ]


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


def _shape(name: str, about: str, entity: type[IntakeBase], without: set[str], **more: Any) -> Any:
    """Return the model of an entity's columns and of further fields."""
    hints = get_type_hints(entity)
    columns = [column.key for column in entity.__table__.columns if column.key not in without]
    fields: dict[str, Any] = {key: (get_args(hints[key])[0], ...) for key in columns}
    return create_model(name, __doc__=about, **fields, **more)


_COUNT = (int, ...)
_INTERNAL = {
    *("path", "path_digest", "lease_token", "lease_owner", "bytes_at_claim", "upload_id"),
    *("part_size", "traceparent", "lost_workers", "same_as"),
}

ServerOut: Any = _shape(
    "ServerOut",
    "A server, its status, and its files by status. `looks` and `way` are deprecated names.",
    SftpServer,
    {"credentials", "scan_token", "scan_until"},
    stable_checks=(int, Field(validation_alias="looks")),
    transfer_mode=(str, Field(validation_alias="way")),
    **dict.fromkeys(("waiting", "moving", "completed", "failed"), _COUNT),
)
FileOut: Any = _shape(
    "FileOut",
    "One version of a remote file.",
    ImportedFile,
    _INTERNAL,
    server=(str, ...),
    path_hex=(str, ...),
    worker=(str | None, ...),
)
TransferOut: Any = _shape(
    "TransferOut",
    "A running transfer with its progress.",
    ImportedFile,
    {
        *_INTERNAL,
        *("server_id", "mtime", "version", "file_hash", "error_message", "next_try_at"),
        *("lease_until", "store", "object_key", "cleanup", "created_at", "completed_at"),
    },
    server=(str, ...),
    worker=(str, ...),
)
HistoryOut: Any = _shape("HistoryOut", "One event of a file.", FileHistory, {"id", "file_id"})
