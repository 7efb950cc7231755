"""The clock of the time-outs knows neither the wall clock nor pauses of the server."""

from __future__ import annotations

from postroad.exchange.uptime import Uptime


class Clocks:
    """Two clocks that tests move."""

    def __init__(self) -> None:
        self.monotonic = 100.0
        self.wall = 1_000_000.0

    def pass_seconds(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


def _time(clocks: Clocks) -> Uptime:
    return Uptime(50.0, monotonic=lambda: clocks.monotonic, wall=lambda: clocks.wall)


def test_it_counts_on_from_where_the_journal_left_off() -> None:
    clocks = Clocks()
    time = _time(clocks)
    clocks.pass_seconds(2)
    assert time.now() == 52.0


def test_a_wall_clock_that_jumps_does_not_disturb_and_is_noticed() -> None:
    clocks = Clocks()
    time = _time(clocks)
    clocks.pass_seconds(1)
    clocks.wall += 86_400
    assert time.now() == 51.0
    assert time.wall_jump() == 86_400
    clocks.pass_seconds(1)
    assert time.wall_jump() == 0


def test_a_server_that_was_stopped_did_not_serve() -> None:
    clocks = Clocks()
    time = _time(clocks)
    clocks.pass_seconds(3_600)
    assert time.now() == 55.0


def test_it_never_goes_back() -> None:
    clocks = Clocks()
    time = _time(clocks)
    clocks.monotonic -= 10
    assert time.now() == 50.0
