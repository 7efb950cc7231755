"""The seed's entities as a sample application: an item, and a node of a tree."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, Identity, String, Uuid
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class SampleBase(DeclarativeBase):
    """The columns of the tables of the sample application."""

    id: Mapped[int] = mapped_column("Id", BigInteger, Identity(), primary_key=True)
    correlation_id: Mapped[uuid.UUID] = mapped_column("CorrelationId", Uuid, default=uuid.uuid4)
    name: Mapped[str] = mapped_column("Name", String(50))


class DummyItem(SampleBase):
    """An item."""

    __tablename__ = "DummyItem"


class DummyNode(SampleBase):
    """A node of a tree; the reference may be checked at commit, so circles can be written."""

    __tablename__ = "DummyNode"

    parent_id: Mapped[int | None] = mapped_column(
        "ParentId",
        ForeignKey("DummyNode.Id", deferrable=True, initially="IMMEDIATE"),
        sort_order=1,
    )
