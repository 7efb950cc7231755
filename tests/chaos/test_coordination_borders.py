"""Each part is gone at each border of its transactions, once: nothing is lost, nothing shown early.

The part that dies is started with the number of the border at which it ends itself; the others run
all the time. When it is gone it is started again, without an end. The numbers go up until a part
comes through a whole round alive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from postroad.testing import TestServer, wait_until
from tests.chaos.coordination_crew import Crew, connected, open_databases
from tests.integration.coordination.checker import Recorder
from tests.integration.coordination.lab import Lab

IS_STRESS = bool(os.environ.get("POSTROAD_STRESS"))
# By default some of them, others for each part; all of them in the full run.
STRIDE = 1 if IS_STRESS else 5
BORDERS_MOST = 100
READER = "one"
BAD = 'update "DummyItem" set "Name" = \'bad\' where "Id" = (select max("Id") from "DummyItem")'


@pytest.fixture
def lab(_servers: Callable[[Path | None], TestServer]) -> Iterator[Lab]:
    with open_databases(_servers(None), READER, policy="refuse") as dsns:
        lab = connected(dsns, (READER,))
        lab.run(READER, 'alter table "DummyItem" add check ("Name" <> \'bad\')')
        yield lab
        for session in lab.sessions.values():
            session.close()


def _write_round(lab: Lab) -> dict[int | None, str]:
    """Write an event of each fate; return what is to become of them."""
    insert = 'insert into "DummyItem" ("Name") select \'{}\' from generate_series(1, {})'
    return {
        lab.write(insert.format("good", 3)): "Committed",
        lab.write(insert.format("better", 2), mode="two-phase"): "Committed",
        lab.write(BAD, mode="two-phase"): "Canceled",
        lab.write('insert into "DummyNode" ("Name") values (\'n\')'): "Committed",
    }


def _until(
    lab: Lab, recorder: Recorder, fates: dict[int | None, str], crew: Crew, part: str
) -> bool:
    """Wait for the end of all events, or of the part; return whether the part lives."""

    def is_over() -> bool:
        recorder.look()
        return not crew.is_alive(part) or _is_finished(lab, fates)

    wait_until(is_over, what=f"an end of the round, or of the {part}", timeout_seconds=60)
    return crew.is_alive(part)


def _is_finished(lab: Lab, fates: dict[int | None, str]) -> bool:
    events = list(fates)
    return bool(
        lab.value(
            "writer",
            'select bool_and("FinishedAt" is not null) from coordination."AppEvent"'
            ' where "Id" = any (%s)',
            events,
        )
        and lab.value(
            "coordinator",
            "select count(*) = %s from coordination.events"
            " where event_id = any (%s) and finished_at is not null",
            len(events),
            events,
        )
    )


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(900 if IS_STRESS else 240)
@pytest.mark.parametrize(("part", "first"), [("writer", 1), ("coordinator", 2), (READER, 3)])
def test_a_part_that_is_gone_at_any_border_is_missed_by_nobody(
    lab: Lab, tmp_path: Path, part: str, first: int
) -> None:
    # Nobody's deadline is to pass: what dies is back soon.
    crew = Crew(lab.dsns, tmp_path, page=2, deadline=timedelta(minutes=5))
    recorder = Recorder(lab)
    deaths = 0
    try:
        for each in ("writer", "coordinator", READER):
            crew.start(each)
        # Only who is known has a vote.
        wait_until(
            lambda: lab.value("coordinator", "select count(*) from coordination.reader"),
            what="a Coordinator that knows the Reader",
        )
        crew.kill(part)
        for border in range(1 if IS_STRESS else first, BORDERS_MOST, STRIDE):
            crew.start(part, die_at=border)
            fates = _write_round(lab)
            lives = _until(lab, recorder, fates, crew, part)
            crew.bury(part)
            if not lives:
                deaths += 1
                crew.start(part)
                assert _until(lab, recorder, fates, crew, part)
                crew.kill(part)
            assert {event: lab.writer_state(event) for event in fates} == fates
            assert {event: lab.state(event) for event in fates} == fates
            lab.assert_same()
            if lives:
                break
        else:
            raise AssertionError(f"the {part} never came through a round")
    finally:
        crew.end()
    recorder.look()
    recorder.check()
    assert deaths > 0
    print(f"{part}: gone at {deaths} borders of its transactions")  # noqa: T201 - a figure
