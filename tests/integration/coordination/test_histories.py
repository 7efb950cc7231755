"""Random histories: services die between transactions, messages are lost, doubled and reordered."""

from __future__ import annotations

import os
import random
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.integration.coordination.checker import Recorder
from tests.integration.coordination.conftest import OpenLab
from tests.integration.coordination.lab import Lab

STEPS = 400 if os.environ.get("POSTROAD_STRESS") else 90
SEEDS = range(10) if os.environ.get("POSTROAD_STRESS") else range(1)


class Writers:
    """Two sessions that write at once, so that events are not committed in order of their ids."""

    def __init__(self, lab: Lab, dice: random.Random) -> None:
        self._dice = dice
        self._sessions: list[Connection[Any]] = []
        try:
            for _ in range(2):
                session = psycopg.connect(lab.dsns["writer"])
                self._sessions.append(session)
                # Whoever would wait for the other gives up: this thread drives both.
                session.execute("set lock_timeout = '50ms'")
                session.commit()
        except psycopg.Error:
            self.close()
            raise

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    def step(self) -> None:
        session = self._dice.choice(self._sessions)
        try:
            if self._dice.random() < 0.4:
                session.commit() if self._dice.random() < 0.85 else session.rollback()
                return
            if session.info.transaction_status == 0 and self._dice.random() < 0.3:
                session.execute("select coordination.set_mode('two-phase')")
            self._change(session)
        except psycopg.errors.DatabaseError:
            session.rollback()

    def _change(self, session: Connection[Any]) -> None:
        number = self._dice.randint(1, 12)
        name = self._dice.choice(("a", "b", "c", "d", "bad"))
        kind = self._dice.randrange(8)
        if kind <= 1:
            statement = (
                'insert into "DummyItem" ("Id", "Name") select n, %(name)s'
                " from generate_series(%(number)s, %(number)s + 1) n"
                ' on conflict ("Id") do update set "Name" = excluded."Name" || \'+\''
            )
        elif kind <= 3:
            statement = 'update "DummyItem" set "Name" = %(name)s where "Id" % 3 = %(number)s % 3'
            statement = statement.replace(" % ", " %% ")
        elif kind == 4:
            statement = 'delete from "DummyItem" where "Id" = %(number)s'
        elif kind == 5:
            statement = (
                'insert into "DummyNode" ("Id", "Name", "ParentId")'
                ' select %(number)s, %(name)s, (select max("Id") from "DummyNode"'
                ' where "Id" < %(number)s) on conflict do nothing'
            )
        elif kind == 6:
            statement = 'update "DummyNode" set "Name" = %(name)s where "Id" >= %(number)s'
        else:
            statement = (
                'delete from "DummyNode" n where "Id" = %(number)s and not exists'
                ' (select from "DummyNode" c where c."ParentId" = n."Id")'
            )
        session.execute(statement.encode(), {"number": number, "name": name})


def _step(lab: Lab, dice: random.Random) -> None:
    """Let one service do one transaction, or the network do its worst."""
    kinds = (
        "publish",
        "pull",
        "pull",
        "deliver",
        "deliver",
        "deliver",
        "deliver",
        "time",
        "cancel",
    )
    kind = dice.choice(kinds)
    if kind == "publish":
        lab.publish("0 seconds" if dice.random() < 0.1 else "1 hour")
    elif kind == "pull":
        lab.pull(dice.choice(lab.readers), page=dice.choice((1, 2, 10)))
    elif kind == "cancel":
        _cancel(lab, dice)
    elif kind == "time":
        lab.tick()
        lab.watch("1 second")
        lab.attend(dice.choice(lab.readers), "1 second")
    elif lab.network:
        # Any of them: reordered. Sometimes it stays: doubled. Sometimes it is not told: lost.
        place = dice.randrange(len(lab.network))
        message = lab.network[place] if dice.random() < 0.2 else lab.network.pop(place)
        if dice.random() > 0.2:
            lab.deliver(message)


def _cancel(lab: Lab, dice: random.Random) -> None:
    """Let an operator cancel what is not decided, so that much is built on cancelled events."""
    undecided = lab.run(
        "coordinator",
        "select event_id from coordination.events"
        " where mode = 'two-phase' and outcome is null and finished_at is null order by 1",
    )
    if undecided:
        lab.run("coordinator", "select coordination.cancel(%s)", dice.choice(undecided)[0])
        lab.collect_decisions()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_only_ever_shows_states_that_the_writer_had(
    open_a_lab: OpenLab, seed: int
) -> None:
    dice = random.Random(seed)
    lab = open_a_lab("r1", "r2", policy="compensate")
    lab.run("r2", 'alter table "DummyItem" add check ("Name" not like \'bad%\')')
    lab.run("r2", "update coordination.progress set max_attempts = 1000")
    recorder = Recorder(lab)
    writers = Writers(lab, dice)
    try:
        for _ in range(STEPS):
            writers.step()
            _step(lab, dice)
            recorder.look()
    finally:
        writers.close()
    # Mended, so that what r2 refuses for good does not keep it from coming to rest.
    lab.run("r2", 'alter table "DummyItem" drop constraint "DummyItem_Name_check"')
    lab.settle()
    recorder.look()
    recorder.check()
    lab.assert_same()
    undecided = lab.run(
        "coordinator", "select event_id, state from coordination.events where finished_at is null"
    )
    assert undecided == []
