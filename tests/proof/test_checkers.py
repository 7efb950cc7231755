"""Each checker accepts what the promises allow and finds every planted violation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proof.history import checkers
from proof.history.checkers import is_parity
from proof.history.record import History, Recorder


class Story:
    """Writes a history by hand, second by second."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._calls = 0
        self._numbers = 0

    def call(
        self, at: float, operation: str, phase: str = "ok", until: float | None = None, **given: Any
    ) -> None:
        """Add a call that takes half a second; phase `none` leaves it without an answer."""
        self._calls += 1
        answer = {name: given.pop(name) for name in ("iids",) if name in given}
        if operation == "lease":
            answer["messages"] = given.pop("messages")
        base = {"client": "c", "call": self._calls, "operation": operation}
        self.events.append({**base, "time": at, "phase": "invoke", **given})
        if phase != "none":
            answered = at + 0.5 if until is None else until
            self.events.append({**base, "time": answered, "phase": phase, **answer})

    def post(self, at: float, key: str, phase: str = "ok", iid: str = "", **message: Any) -> None:
        self.call(
            at,
            "post",
            phase,
            queue="q",
            messages=[{"key": key, **message}],
            iids=[iid or f"q.{key}@x"],
        )

    def effect(
        self,
        key: str,
        consumer: str = "default",
        at: float = 100.0,
        began: float | None = None,
        **given: Any,
    ) -> None:
        self._numbers += 1
        row = {"number": self._numbers, "queue": "q", "consumer": consumer, "key": key}
        row |= {"iid": f"q.{key}@x", "at": at, "began": at if began is None else began}
        row |= {"handled": at, **given}
        self.note("effect", **row)

    def fault(self, kind: str, began: float, ended: float) -> None:
        self.note("fault", kind=kind, target="pg1", began=began, ended=ended)

    def lease(self, at: float, token: int, key: str = "a", leased_until: float = 1e9) -> None:
        held = {"iid": f"q.{key}@x", "token": token, "key": key, "leased_until": leased_until}
        self.call(at, "lease", queue="q", messages=[held])

    def ack(self, at: float, token: int, phase: str = "ok", key: str = "a") -> None:
        self.call(at, "ack", phase, queue="q", iid=f"q.{key}@x", token=token)

    def work(self, key: str = "a") -> None:
        self.note("handled", queue="q", key=key)

    def note(self, operation: str, **fields: Any) -> None:
        self._calls += 1
        base = {"time": 1.0, "client": "c", "call": self._calls, "phase": "note"}
        self.events.append({**base, "operation": operation, **fields})

    def history(self) -> History:
        history = History()
        # As from a file: the reader takes the events apart.
        lines: Iterator[dict[str, Any]] = (json.loads(json.dumps(each)) for each in self.events)
        history.add(lines)
        return history


@pytest.fixture
def story() -> Story:
    return Story()


CONSUMERS = {"default": None, "even": is_parity("even")}


def test_delivery_accepts_what_is_allowed(story: Story) -> None:
    story.post(1, "a", parity="even")
    story.effect("a")
    story.effect("a", "even")
    story.post(2, "b", parity="odd")
    story.effect("b")
    story.post(3, "c", phase="unknown", parity="odd")
    story.post(4, "d", phase="none", parity="odd")
    story.effect("d")
    story.post(5, "e", phase="unknown", parity="odd")
    story.post(6, "e", parity="odd")
    story.effect("e")

    finding = checkers.check_delivery(story.history(), "q", CONSUMERS)

    assert not finding.violations
    assert not finding.lost
    assert finding.checked == 10


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda s: s.post(9, "z", parity="odd"), "never got z"),
        (lambda s: s.effect("ghost"), "no client posted"),
        (lambda s: (s.post(9, "z", parity="odd"), s.effect("z", "even")), "does not match"),
        (lambda s: (s.post(9, "z", parity="even"), s.effect("z")), "even never got z"),
        (lambda s: s.effect("a", "stranger"), "unknown consumer"),
        (lambda s: s.post(9, "a", iid="q.77@x", parity="even"), "several iids"),
    ],
)
def test_delivery_finds_planted_violations(story: Story, plant: Any, found: str) -> None:
    story.post(1, "a", parity="even")
    story.effect("a")
    story.effect("a", "even")
    plant(story)

    finding = checkers.check_delivery(story.history(), "q", CONSUMERS)

    assert any(found in each for each in finding.violations + finding.lost)


def test_work_done_twice_is_found_by_key_and_by_iid(story: Story) -> None:
    story.effect("a")
    story.effect("a", "audit")
    story.effect("b")
    assert not checkers.check_exactly_once(story.history(), "q").violations
    story.effect("a", iid="q.8@x")
    assert "did a twice" in checkers.check_exactly_once(story.history(), "q").violations[0]
    story.effect("c", iid="q.b@x")
    assert len(checkers.check_exactly_once(story.history(), "q").violations) == 2


def test_a_bridge_may_repeat_only_what_was_posted_twice_and_lost(story: Story) -> None:
    story.post(1, "a")
    story.post(2, "b", phase="unknown")
    story.effect("a", queue="back")
    finding = checkers.check_bridge(story.history(), "q", "back")
    assert (finding.checked, finding.violations, finding.lost) == (2, [], [])

    story.post(3, "c")
    story.effect("a", queue="back", iid="back.9@x")
    story.effect("ghost", queue="back")
    story.post(4, "b")
    for _ in range(2):
        story.effect("b", queue="back")

    finding = checkers.check_bridge(story.history(), "q", "back")

    assert sorted(finding.violations) == [
        "back: a arrived 2 times",
        "back: ghost arrived, which no client posted",
    ]
    assert sorted(finding.lost) == [
        "back: b arrived 2 times",
        "back: c never arrived, acknowledged",
    ]


def test_order_of_groups_may_have_holes_but_never_goes_back(story: Story) -> None:
    for sequence in (1, 2, 4):
        story.effect(f"a{sequence}", group="a", sequence=sequence)
        story.effect(f"b{sequence}", group="b", sequence=sequence)
    finding = checkers.check_order(story.history(), "q")
    assert (finding.checked, finding.violations) == (6, [])
    story.effect("a3", group="a", sequence=3)
    assert "number 3 after number 4" in checkers.check_order(story.history(), "q").violations[0]


def test_a_message_before_its_delay_is_found(story: Story) -> None:
    story.post(1, "a", delayed_until=50.0)
    story.effect("a", at=50.0)
    assert not checkers.check_delay(story.history(), "q").violations
    story.post(1, "b", delayed_until=60.0)
    story.effect("b", at=59.9)
    assert "delayed_until" in checkers.check_delay(story.history(), "q").violations[0]


def test_a_message_taken_after_its_expiry_is_found(story: Story) -> None:
    story.post(1, "a", expires=50.0)
    story.effect("a", began=49.0, at=55.0)
    assert not checkers.check_expiry(story.history(), "q").violations
    story.post(1, "b", expires=50.0)
    story.effect("b", began=50.1, at=50.2)
    assert "expires" in checkers.check_expiry(story.history(), "q").violations[0]


def test_times_are_not_judged_while_a_clock_jumps(story: Story) -> None:
    story.fault(checkers.SERVER_JUMP, began=40.0, ended=45.0)
    story.post(1, "a", delayed_until=60.0)
    story.effect("a", at=50.0)

    finding = checkers.check_delay(story.history(), "q")

    assert (finding.checked, finding.skipped, finding.violations) == (0, 1, [])


def test_leases_accept_what_is_allowed(story: Story) -> None:
    story.post(1, "a")
    story.lease(2, token=1)
    story.lease(30, token=2)
    story.ack(31, token=1, phase="refused")
    story.work()
    story.ack(33, token=2, phase="unknown")
    story.ack(34, token=2)
    story.ack(35, token=2)
    story.post(3, "b", phase="unknown")

    finding = checkers.check_leases(story.history(), "q")

    assert not finding.violations
    assert not finding.lost


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda s: (s.lease(20, 2), s.ack(30, 1)), "a fenced holder acked"),
        (lambda s: (s.lease(20, 2), s.ack(20.2, 1), s.ack(40, 2)), "under two tokens"),
        (lambda s: (s.ack(20, 1), s.lease(30, 2)), "leased again after its ack"),
        (lambda s: (s.post(2, "b"), s.ack(20, 1)), "b was acknowledged and never worked on"),
        (lambda s: (s.lease(8, 5, "b", leased_until=30.0), s.ack(31, 5, key="b")), "had ended"),
        (lambda s: (s.lease(8, 5, "b"), s.ack(31, 5, key="b")), "without its work"),
    ],
)
def test_leases_find_planted_violations(story: Story, plant: Any, found: str) -> None:
    story.post(1, "a")
    story.lease(2, token=1)
    story.work()
    plant(story)

    finding = checkers.check_leases(story.history(), "q")

    assert any(found in each for each in finding.violations + finding.lost)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        # Acked before a failover, and once more after it.
        (lambda s: (s.ack(20, 1), s.lease(30, 2), s.ack(31, 2)), "under two tokens"),
        # Both primaries at once.
        (lambda s: (s.ack(20, 1), s.lease(20.1, 2), s.ack(20.8, 2)), "two tokens"),
        # The lease that is lost fenced the other holder.
        (lambda s: (s.lease(20, 2), s.ack(30, 1)), "a fenced holder acked"),
        (lambda s: (s.ack(20, 1), s.lease(30, 2)), "leased again after its ack"),
    ],
)
def test_the_time_of_the_former_call_decides_whether_it_was_lost(
    story: Story, plant: Any, found: str
) -> None:
    story.post(1, "a")
    story.lease(2, token=1)
    story.work()
    plant(story)

    finding = checkers.check_leases(story.history(), "q")

    [(text, at)] = finding.moments.items()
    assert found in text
    assert (at, finding.lost, finding.violations) == (20.5, [text], [])


def test_each_of_three_acks_needs_its_own_failover(story: Story) -> None:
    story.post(1, "a")
    story.work()
    for token in (1, 2, 3):
        story.lease(10 * token, token)
        story.ack(10 * token + 5, token)

    finding = checkers.check_leases(story.history(), "q")

    assert (list(finding.moments.values()), finding.violations) == ([15.5, 25.5], [])


STEPS = ("rooms", "ticket", "bill")


def _saga(story: Story, key: str, *actions: str, phase: str = "ok") -> None:
    story.call(1, "saga", phase, queue="q", key=key)
    for action in actions:
        story.effect(key, detail=action)


def test_sagas_accept_all_done_or_all_undone(story: Story) -> None:
    _saga(story, "a", "do:rooms", "do:ticket", "do:bill")
    _saga(story, "b", "do:rooms", "do:ticket", "undo:ticket", "undo:rooms")
    _saga(story, "c", phase="unknown")

    finding = checkers.check_sagas(story.history(), "q", STEPS)

    assert (finding.checked, finding.violations, finding.lost) == (3, [], [])


@pytest.mark.parametrize(
    ("actions", "found"),
    [
        (("do:rooms", "do:ticket"), "ended with"),
        (("do:rooms", "do:ticket", "undo:rooms"), "ended with"),
        (("do:rooms", "do:rooms", "do:ticket", "do:bill"), "did twice"),
        (("undo:rooms", "do:rooms"), "before it was done"),
        ((), "did nothing"),
    ],
)
def test_sagas_find_planted_violations(story: Story, actions: tuple[str, ...], found: str) -> None:
    _saga(story, "a", *actions)

    finding = checkers.check_sagas(story.history(), "q", STEPS)

    assert any(found in each for each in finding.violations + finding.lost)


def test_the_longest_gap_is_between_neighbours() -> None:
    assert checkers.longest_gap([5.0, 1.0, 2.0, 9.0]) == 4.0
    assert checkers.longest_gap([1.0]) == 0.0


def test_a_recorded_history_is_read_back_and_half_a_line_is_ignored(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "poster")
    first = recorder.invoke("post", queue="q", messages=[{"key": "a"}])
    recorder.answer(first, "post", "ok", iids=["q.1@x"])
    recorder.invoke("post", queue="q", messages=[{"key": "b"}])
    recorder.close()
    [file] = tmp_path.iterdir()
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"time": 1.0, "clie')

    history = History.read(tmp_path)

    assert [call.phase for call in history.calls] == ["ok", "unknown"]
    posts = checkers.posted(history, "q")
    assert posts["a"].acknowledged is not None
    assert posts["b"].acknowledged is None


def test_the_checkers_import_nothing_of_the_product() -> None:
    folder = Path(checkers.__file__).parent
    for file in folder.glob("*.py"):
        assert "import postroad" not in (text := file.read_text(encoding="utf-8"))
        assert "from postroad" not in text
