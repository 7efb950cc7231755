"""Each message of a calm day, one at a time: lost, doubled, or the last of all to arrive."""

from __future__ import annotations

import os

import pytest

from tests.integration.coordination.checker import Recorder
from tests.integration.coordination.lab import Lab

MESSAGES_MOST = 60
# By default every fourth message, another one for each fault; every one in the full run.
STRIDE = 1 if os.environ.get("POSTROAD_STRESS") else 4
BAD = 'update "DummyItem" set "Name" = \'bad\' where "Id" = (select max("Id") from "DummyItem")'


def _write_round(lab: Lab) -> dict[int | None, str]:
    """Write an event of each fate; return what is to become of them."""
    insert = 'insert into "DummyItem" ("Name") select \'{}\' from generate_series(1, {})'
    fates = {}
    for statement, mode, fate in (
        (insert.format("good", 3), None, "Committed"),
        (insert.format("better", 1), "two-phase", "Committed"),
        (BAD, "two-phase", "Canceled"),
        ('insert into "DummyNode" ("Name") values (\'n\')', None, "Committed"),
    ):
        fates[lab.write(statement, mode=mode)] = fate
        lab.publish()
    return fates


def _play(lab: Lab, fault: str, place: int, recorder: Recorder) -> bool:
    """Let everything arrive, one message as the fault says; return whether there was one."""
    number, late = 0, []
    while lab.publish() + len(lab.network) + len(late):
        while lab.pull("r1", page=2):
            recorder.look()
        if not lab.network:
            lab.deliver(late.pop())
            continue
        message = lab.network.pop(0)
        number += 1
        if number == place and fault == "late":
            late.append(message)
        elif number != place or fault != "lost":
            lab.deliver(message)
            if number == place:
                lab.deliver(message)
        recorder.look()
    return number >= place


@pytest.mark.parametrize(("first", "fault"), [(1, "lost"), (2, "doubled"), (3, "late")])
def test_no_single_message_matters(lab: Lab, first: int, fault: str) -> None:
    lab.run("r1", 'alter table "DummyItem" add check ("Name" <> \'bad\')')
    recorder = Recorder(lab)
    for place in range(1 if STRIDE == 1 else first, MESSAGES_MOST, STRIDE):
        fates = _write_round(lab)
        is_struck = _play(lab, fault, place, recorder)
        lab.settle()
        recorder.look()
        assert {event: lab.state(event) for event in fates} == fates, place
        assert {event: lab.writer_state(event) for event in fates} == fates, place
        if not is_struck:
            break
    else:
        raise AssertionError("a round has no end")
    assert place > 10
    lab.assert_same()
    recorder.check()
