"""The tables of schema intake as SQLAlchemy entities, for applications that read them.

```python
IntakeBase.prepare(engine)      # once: the columns are read from the database
files = session.scalars(select(ImportedFile).join(SftpServer))
```

The state of a file is changed by functions of the schema, never by an assignment.
"""

from __future__ import annotations

from sqlalchemy import MetaData
from sqlalchemy.ext.declarative import DeferredReflection
from sqlalchemy.orm import DeclarativeBase, Mapped, relationship


class IntakeBase(DeferredReflection, DeclarativeBase):
    """The common base of the entities."""

    metadata = MetaData(schema="intake")


class SftpServer(IntakeBase):
    """A source: one watched folder of an SFTP server. Its credentials are sealed."""

    __tablename__ = "sftp_servers"

    files: Mapped[list[ImportedFile]] = relationship(back_populates="server", viewonly=True)


class ImportedFile(IntakeBase):
    """One version of a remote file: path, size and mtime."""

    __tablename__ = "imported_files"

    server: Mapped[SftpServer] = relationship(back_populates="files", viewonly=True)
    parts: Mapped[list[FilePart]] = relationship(viewonly=True, order_by="FilePart.number")
    history: Mapped[list[FileHistory]] = relationship(viewonly=True, order_by="FileHistory.id")


class FilePart(IntakeBase):
    """A stored part of an upload."""

    __tablename__ = "file_parts"


class FileHistory(IntakeBase):
    """One event of a file."""

    __tablename__ = "file_history"
