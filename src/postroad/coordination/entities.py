"""Registering SQLAlchemy models: tracked at the Writer, kept as replicas at a Reader.

Changes are captured by triggers, so those of a bulk statement, raw SQL and another program are
captured as well as those of a flush.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, Engine, Table, func, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from postroad.coordination.errors import CoordinationError, EntityNotFound
from postroad.postgres.errors import raised_by

Mode = Literal["replicate", "two-phase"]
Policy = Literal["refuse", "compensate"]


class _Registrar:
    """Calls functions of schema coordination through an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def _call(self, function: str, *given: object) -> None:
        with _own_errors(), self.engine.begin() as connection:
            connection.execute(select(getattr(func.coordination, function)(*given)))


class EntityWriter(_Registrar):
    """The Writer's side of a service: registers the models to track."""

    def __init__(self, engine: Engine, name: str | None = None) -> None:
        super().__init__(engine)
        self._call("become", "writer", name)

    def track(
        self,
        *models: type[Any] | Table,
        mode: Mode | None = None,
        on_conflict: Policy | None = None,
        with_rows: bool = True,
    ) -> Self:
        """Write an event for every transaction that changes these models, from now on.

        `mode` is the mode of their events unless the transaction sets another one. `on_conflict` is
        what a rollback does with rows that were changed since: `refuse` restores nothing and raises
        an alert, `compensate` restores the other rows. None keeps the previous setting; the
        defaults are `replicate` and `refuse`. Existing rows of a table that was not tracked are
        sent to the Readers; `with_rows=False` leaves that to their first snapshot. Repeatable; call
        it after a model's table was altered, after `replicate` at the Readers. Raises
        EntityNotFound, KeyMissing, InvalidEntityName.
        """
        for model in models:
            name, table = _described(model)
            self._call("track", table, name, mode, on_conflict, with_rows)
        return self

    def untrack(self, *models: type[Any] | Table) -> Self:
        """Write no more events for these models; existing events stay."""
        for model in models:
            self._call("untrack", _described(model)[0])
        return self

    @staticmethod
    def set_mode(session: Session | Connection, mode: Mode) -> None:
        """Make the event of this transaction replicate or two-phase. Raises InvalidChoice."""
        with _own_errors():
            session.execute(select(func.coordination.set_mode(mode)))

    @staticmethod
    def current_event(session: Session | Connection) -> int | None:
        """Return the event that this transaction writes; None before its first flushed change."""
        if isinstance(session, Session):
            session.flush()
        found: int | None = session.execute(select(func.coordination.current_event())).scalar()
        return found


class EntityReader(_Registrar):
    """A Reader's side: which models hold copies of the Writer's entities."""

    def __init__(self, engine: Engine, name: str) -> None:
        super().__init__(engine)
        self._call("become", "reader", name)

    def replicate(self, *models: type[Any] | Table, is_subset: bool = False) -> Self:
        """Keep copies of the Writer's entities in the tables of these models.

        With `is_subset` columns of the Writer that a table lacks are left out instead of refused.
        Repeatable; call it after a table was altered. Raises EntityNotFound, KeyMissing.
        """
        for model in models:
            name, table = _described(model)
            self._call("replicate", table, name, is_subset)
        return self

    def ignore(self, *names: str) -> Self:
        """Ignore these entities of the Writer, instead of parking their events here."""
        for name in names:
            self._call("ignore", name)
        return self


def writer(engine: Engine, name: str | None = None) -> EntityWriter:
    """Make the engine's database a Writer: `coordination.writer(engine).track(Item, Node)`.

    Without a name it keeps its name; a new Writer is called writer.
    """
    return EntityWriter(engine, name)


def reader(engine: Engine, name: str) -> EntityReader:
    """Make the engine's database the Reader of this name."""
    return EntityReader(engine, name)


def engine_url(dsn: str) -> str:
    """Return SQLAlchemy's URL of a database with this libpq connection string."""
    # SQLAlchemy passes the query to libpq, key by key.
    parts = {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    return make_url("postgresql+psycopg://").update_query_dict(parts).render_as_string(False)


def _described(model: type[Any] | Table) -> tuple[str, str]:
    table = model if isinstance(model, Table) else inspect(model).local_table
    if not isinstance(table, Table):
        raise EntityNotFound(f"{model!r} is not mapped to a table of its own")
    name = table.name if isinstance(model, Table) else model.__name__
    quoted = ".".join(
        '"' + part.replace('"', '""') + '"' for part in (table.schema or "public", table.name)
    )
    return name, quoted


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except DBAPIError as failure:
        if not isinstance(failure.orig, psycopg.Error):
            raise
        raise (raised_by(CoordinationError, failure.orig) or failure) from failure
