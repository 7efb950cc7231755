"""The tables of schema intake as SQLAlchemy entities, for applications that read them.

The schema itself is made and upgraded by the migrator from `sql/`; these classes map onto it. What
changes the state of a file is a function of the schema, never an assignment here: the states guard
leases, notices and versions.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, LargeBinary, MetaData, Text
from sqlalchemy.dialects.postgresql import ARRAY, INTERVAL, JSONB, TIMESTAMP
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class IntakeBase(DeclarativeBase):
    """What the entities have in common: schema intake, times with zones."""

    metadata = MetaData(schema="intake")
    type_annotation_map = {  # noqa: RUF012 - read by the mapper, never changed
        str: Text,
        datetime: TIMESTAMP(timezone=True),
        timedelta: INTERVAL,
        bytes: LargeBinary,
        dict[str, Any]: JSONB,
        list[str]: ARRAY(Text),
    }


class SftpServer(IntakeBase):
    """A source: one watched folder of an SFTP server. Its credentials are sealed."""

    __tablename__ = "sftp_servers"

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    host: Mapped[str]
    port: Mapped[int]
    username: Mapped[str]
    credentials: Mapped[str]
    directory: Mapped[str]
    is_active: Mapped[bool]
    host_key: Mapped[str | None]
    trusts_first_key: Mapped[bool]
    scan_interval: Mapped[timedelta | None]
    include: Mapped[list[str]]
    exclude: Mapped[list[str]]
    ignore: Mapped[list[str]]
    is_case_sensitive: Mapped[bool]
    max_depth: Mapped[int]
    follows_links: Mapped[bool]
    looks: Mapped[int]
    minimum_age: Mapped[timedelta]
    done_suffix: Mapped[str | None]
    after_import: Mapped[str]
    move_to: Mapped[str | None]
    way: Mapped[str]
    max_connections: Mapped[int]
    status: Mapped[str]
    problem: Mapped[str | None]
    failures: Mapped[int]
    retry_at: Mapped[datetime | None]
    seen_host_key: Mapped[str | None]
    next_scan_at: Mapped[datetime]
    scan_token: Mapped[int | None] = mapped_column(BigInteger)
    scan_until: Mapped[datetime | None]
    last_scan_at: Mapped[datetime | None]
    last_scan: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]

    files: Mapped[list[ImportedFile]] = relationship(back_populates="server", viewonly=True)

    def __repr__(self) -> str:
        return f"SftpServer({self.name!r}, {self.username}@{self.host}:{self.port})"


class ImportedFile(IntakeBase):
    """One version of a remote file: path, size and mtime."""

    __tablename__ = "imported_files"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    server_id: Mapped[int] = mapped_column(ForeignKey("sftp_servers.id", ondelete="CASCADE"))
    filename: Mapped[str]
    path: Mapped[bytes]
    path_digest: Mapped[bytes]
    filesize: Mapped[int] = mapped_column(BigInteger)
    mtime: Mapped[int] = mapped_column(BigInteger)
    version: Mapped[int]
    file_hash: Mapped[str | None]
    status: Mapped[str]
    error_message: Mapped[str | None]
    attempts: Mapped[int]
    next_try_at: Mapped[datetime]
    lease_token: Mapped[int | None] = mapped_column(BigInteger)
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    bytes_done: Mapped[int] = mapped_column(BigInteger)
    bytes_at_claim: Mapped[int] = mapped_column(BigInteger)
    store: Mapped[str | None]
    object_key: Mapped[str | None]
    upload_id: Mapped[str | None]
    part_size: Mapped[int | None] = mapped_column(BigInteger)
    cleanup: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    completed_at: Mapped[datetime | None]
    traceparent: Mapped[str | None]
    lost_workers: Mapped[int]
    same_as: Mapped[int | None] = mapped_column(BigInteger)

    server: Mapped[SftpServer] = relationship(back_populates="files", viewonly=True)
    parts: Mapped[list[FilePart]] = relationship(viewonly=True, order_by="FilePart.number")
    history: Mapped[list[FileHistory]] = relationship(viewonly=True, order_by="FileHistory.id")


class FilePart(IntakeBase):
    """A part of an upload that the store has."""

    __tablename__ = "file_parts"

    file_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("imported_files.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    etag: Mapped[str]
    sha256: Mapped[bytes]
    stored_at: Mapped[datetime]


class FileHistory(IntakeBase):
    """One thing that happened to a file."""

    __tablename__ = "file_history"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    file_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("imported_files.id", ondelete="CASCADE")
    )
    at: Mapped[datetime]
    status: Mapped[str]
    note: Mapped[str | None]
