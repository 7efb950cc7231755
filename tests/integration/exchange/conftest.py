"""Most behaviour does not depend on the version of PostgreSQL: one is enough by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.postgres import variants_of_a_room


@pytest.fixture(params=variants_of_a_room())
def server_bin_folder(request: pytest.FixtureRequest) -> Path | None:
    return request.param
