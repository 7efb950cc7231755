"""What the console says about files belongs to states that files have."""

from __future__ import annotations

from postroad.intake.resources import FILES
from postroad.intake.status import FILE_STATUSES


def test_every_next_step_belongs_to_a_state_of_a_file() -> None:
    assert FILES.journey is not None
    assert FILES.journey.next.keys() <= set(FILE_STATUSES)
