"""The checkers of exchange, coordination and intake find every planted violation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proof.history.partners import check_files, check_hand_over, check_readers
from tests.proof.test_checkers import Story


def _hand(story: Story, key: str) -> None:
    story.note("handed_over", database="sales", key=key)


def _send(story: Story, key: str, phase: str = "ok") -> None:
    story.call(1, "send", phase, database="sales", key=key)


def test_a_message_without_an_answer_may_be_handed_over_or_not() -> None:
    story = Story()
    for key, phase in (("a", "ok"), ("b", "unknown"), ("c", "none"), ("d", "unknown"), ("d", "ok")):
        _send(story, key, phase)
    for key in ("a", "c", "d"):
        _hand(story, key)
    story.note("handed_over", database="stock", key="a")

    finding = check_hand_over(story.history(), "sales")

    assert (finding.checked, finding.violations, finding.lost) == (4, [], [])


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda s: _hand(s, "a"), "a was handed over 2 times"),
        (lambda s: _hand(s, "ghost"), "ghost was handed over, which no client sent"),
        (lambda s: _send(s, "z"), "z was accepted and never handed over"),
        (lambda s: (_send(s, "z", "unknown"), _send(s, "z")), "z was accepted"),
    ],
)
def test_a_hand_over_that_lacks_or_repeats_is_found(
    plant: Callable[[Story], object], found: str
) -> None:
    story = Story()
    _send(story, "a")
    _hand(story, "a")
    plant(story)

    finding = check_hand_over(story.history(), "sales")

    assert any(found in each for each in finding.violations + finding.lost)


class Diary(Story):
    """Writes states of a table, each named by a letter, as the Writer and a Reader had them."""

    def write(self, before: str, after: str, phase: str = "ok") -> None:
        given = {"before": _state(before), "after": _state(after)}
        self.call(len(self.events) + 1.0, "write", phase, **given)

    def show(self, *states: str) -> None:
        for state in states:
            self.note("shown", rows=_state(state))


def _state(letter: str) -> dict[str, str]:
    return {"1": letter} if letter else {}


def _diary() -> Diary:
    diary = Diary()
    diary.write("", "a")
    diary.write("a", "b", phase="unknown")
    diary.write("b", "c")
    diary.write("c", "x", phase="none")
    diary.write("c", "d")
    return diary


@pytest.mark.parametrize(
    "shown", [("", "a", "b", "c", "d"), ("d",), ("a", "c", "d"), ("", "", "b", "d", "d")]
)
def test_a_reader_may_miss_states(shown: tuple[str, ...]) -> None:
    diary = _diary()
    diary.show(*shown)

    finding = check_readers(diary.history())

    assert (finding.checked, finding.violations, finding.lost) == (len(shown), [], [])


def test_the_last_write_may_have_no_answer() -> None:
    for last in ("d", "e"):
        diary = _diary()
        diary.write("d", "e", phase="unknown")
        diary.show("a", last)
        finding = check_readers(diary.history())
        assert finding.violations + finding.lost == []


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (("a", "z", "d"), "never had"),
        (("b", "a", "d"), "out of order"),
        (("a", "x", "d"), "never had"),
        (("a", "b", "c"), "no Reader showed the last state"),
        ((), "no Reader showed the last state"),
    ],
)
def test_a_reader_that_shows_another_state_is_found(shown: tuple[str, ...], found: str) -> None:
    diary = _diary()
    diary.show(*shown)

    finding = check_readers(diary.history())

    assert any(found in each for each in finding.violations + finding.lost)


def test_a_lost_write_of_the_writer_is_found() -> None:
    diary = _diary()
    diary.write("c", "e")
    diary.show("e")
    assert "the Writer began with" in check_readers(diary.history()).violations[0]


def _shop() -> Story:
    story = Story()
    for at, sha256 in ((1, "one"), (10, "two"), (1000, "three")):
        story.call(at, "put", name="prices", sha256=sha256)
    for sha256 in ("two", "three", "of another shop"):
        story.note("object", sha256=sha256)
        story.note("notice", sha256=sha256)
    return story


def test_a_version_that_was_replaced_quickly_may_be_missing() -> None:
    finding = check_files(_shop().history())
    assert (finding.checked, finding.violations, finding.lost) == (3, [], [])


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda s: s.note("object", sha256="three"), "has 2 objects"),
        (lambda s: s.note("notice", sha256="two"), "has 2 notices"),
        (lambda s: s.note("notice", sha256="one"), "a notice and no object"),
        (
            lambda s: s.call(2000, "put", name="prices", sha256="four"),
            "prices of 2000 has no notice",
        ),
        (lambda s: s.call(1, "put", name="stock", sha256="five"), "stock of 1 has no notice"),
    ],
)
def test_an_object_or_a_notice_that_lacks_or_repeats_is_found(
    plant: Callable[[Story], object], found: str
) -> None:
    story = _shop()
    plant(story)

    finding = check_files(story.history())

    assert any(found in each for each in finding.violations + finding.lost)


def test_a_version_that_was_there_long_must_have_been_imported() -> None:
    story = Story()
    story.call(1, "put", name="prices", sha256="one")
    story.call(1000, "put", name="prices", sha256="two")
    story.note("object", sha256="two")
    story.note("notice", sha256="two")
    assert "has no notice" in check_files(story.history()).lost[0]
