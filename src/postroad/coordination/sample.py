"""The sample application: a Writer whose items, and nodes of a tree, change all the time."""

from __future__ import annotations

import random
from datetime import timedelta

from sqlalchemy import create_engine

from postroad.coordination import entities
from postroad.coordination.models import DummyItem, DummyNode, SampleBase
from postroad.coordination.service import PollingService
from postroad.postgres.calls import Connection

INTERVAL = timedelta(milliseconds=500)
MAX_ROWS = 200
TWO_PHASE_SHARE = 0.1

_INSERT_ITEMS = (
    'insert into "DummyItem" ("CorrelationId", "Name")'
    " select gen_random_uuid(), 'item ' || n from generate_series(1, %(count)s) n",
)
_CHANGES = (
    _INSERT_ITEMS,
    _INSERT_ITEMS,
    (
        """update "DummyItem" set "Name" = 'renamed ' || %(number)s::integer where "Id" in"""
        ' (select "Id" from "DummyItem" order by random() limit 3)',
    ),
    (
        'insert into "DummyNode" ("CorrelationId", "Name", "ParentId")'
        ' select gen_random_uuid(), \'node\', (select max("Id") from "DummyNode")',
    ),
    (
        # Only leaves of the tree are deleted, so that no child loses its parent.
        'delete from "DummyNode" n where not exists'
        ' (select from "DummyNode" c where c."ParentId" = n."Id")'
        ' and (select count(*) from "DummyNode") > %(kept)s',
        'delete from "DummyItem" where "Id" in'
        ' (select "Id" from "DummyItem" order by "Id" desc offset %(kept)s)',
    ),
)


def install_sample(dsn: str, *, reader: str | None = None) -> None:
    """Create the tables and register them: at the Writer, or at a named Reader. Repeatable."""
    engine = create_engine(entities.engine_url(dsn))
    try:
        SampleBase.metadata.create_all(engine)
        if reader is None:
            entities.writer(engine).track(DummyItem, DummyNode)
        else:
            entities.reader(engine, reader).replicate(DummyItem, DummyNode)
    finally:
        engine.dispose()


class SampleWriter(PollingService):
    """Changes a few rows at each interval, and continues when the database is back."""

    def __init__(self, dsn: str) -> None:
        super().__init__("coordination sample", dsn, pause=INTERVAL)
        self._dice = random.Random()  # noqa: S311 - a sample
        self.changes = 0

    async def work(self, connection: Connection) -> bool:
        """Make one transaction of changes."""
        given = {"count": self._dice.randint(1, 12), "number": self._dice.randint(1, 999)}
        async with connection.transaction():
            if self._dice.random() < TWO_PHASE_SHARE:
                await connection.execute("select coordination.set_mode('two-phase')")
            for statement in self._dice.choice(_CHANGES):
                await connection.execute(statement, {**given, "kept": MAX_ROWS})
        self.changes += 1
        self.signals.emit("changed", self.changes)
        return False
