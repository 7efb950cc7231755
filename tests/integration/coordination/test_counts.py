"""What an event costs: messages, pulls and transactions."""

from __future__ import annotations

from math import ceil

import pytest

from tests.integration.coordination.lab import Lab

SIZES = (1, 10, 11, 100)


def _insert(count: int) -> str:
    return f'insert into "DummyItem" ("Name") select \'n\' || n from generate_series(1, {count}) n'


def test_a_replicated_event_takes_three_messages_and_one_pull_for_each_page(lab: Lab) -> None:
    for size in SIZES:
        lab.posted = lab.pulls = lab.transactions = 0
        event = lab.write(_insert(size))
        lab.quiet()
        assert lab.state(event) == lab.writer_state(event) == "Committed"
        assert lab.posted == 3  # event, acknowledgement, finished
        assert lab.pulls == ceil(size / 10)
        # Writer: the change, publish, finish. Coordinator: event, acknowledgement.
        # The last message goes to the Reader, too, where it is one more that changes nothing.
        assert lab.transactions == 6 + ceil(size / 10)
    lab.assert_same()


def test_a_two_phase_event_takes_four_messages_and_one_pull_for_each_page(
    lab_of_each: Lab,
) -> None:
    lab = lab_of_each
    for size in SIZES:
        lab.posted = lab.pulls = lab.transactions = 0
        event = lab.write(_insert(size), mode="two-phase")
        lab.quiet()
        assert lab.state(event) == lab.writer_state(event) == "Committed"
        assert lab.posted == 4  # event, vote, decision, done
        assert lab.pulls == ceil(size / 10)
        # Writer: the change, publish, decision. Coordinator: event, vote, done. Reader: decision.
        assert lab.transactions == 7 + ceil(size / 10)
    lab.assert_same()


def test_many_events_share_their_messages(lab: Lab) -> None:
    for _ in range(50):
        lab.write(_insert(1))
    lab.quiet(page=1000)
    assert lab.posted == 3
    assert lab.pulls == 1
    lab.assert_same()


@pytest.mark.both_versions
def test_every_database_shows_the_states_of_a_replicated_event_once(lab_of_each: Lab) -> None:
    lab = lab_of_each
    event = lab.write(_insert(1))
    lab.publish()
    saved = lab.value(
        "writer", 'select "PublishedAt" from coordination."AppEvent" where "Id" = %s', event
    )
    # The first message is lost; and an earlier version has stored the first state.
    lab.network.clear()
    lab.tick()
    lab.publish("0 seconds")
    for part in ("writer", "coordinator"):
        stored = "insert into coordination.history (event_id, states, by) values (%s, %s, 'writer')"
        lab.run(part, stored, event, ["Created"])
    lab.quiet()
    at_reader = ["Preparing", "Prepared", "Processing", "Processed", "Committing", "Committed"]
    for part, states, reader_states in (
        ("writer", ["Created", "Saving", "Committed"], []),
        ("r1", [], at_reader),
        ("coordinator", ["Created", "Saving", "Saved", "Activated", "Committed"], at_reader),
    ):
        seen = lab.run(
            part,
            "select reader, state, at from coordination.event_history"
            " where event_id = %s order by at, place",
            event,
        )
        assert sorted(state for reader, state, _ in seen if reader is None) == sorted(states), part
        assert [state for reader, state, _ in seen if reader == "r1"] == reader_states, part
        if part == "writer":
            assert [at for _, state, at in seen if state == "Saving"] == [saved]


@pytest.mark.slow
def test_a_hundred_thousand_payloads_are_one_event(lab: Lab) -> None:
    event = lab.write(_insert(100_000), mode="two-phase")
    lab.quiet(page=20_000)
    assert lab.state(event) == "Committed"
    assert (lab.posted, lab.pulls) == (4, 5)
    assert lab.value("r1", 'select count(*) from "DummyItem"') == 100_000
    notes = lab.run(
        "coordinator",
        "select note from coordination.event_history"
        " where event_id = %s and reader = 'r1' and note like '%%/%%' order by at",
        event,
    )
    assert [note for (note,) in notes] == [f"{n * 20_000}/100000" for n in range(1, 6)]
