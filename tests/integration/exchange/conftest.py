"""Most behaviour does not depend on the version of PostgreSQL: one is enough here."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=[None], ids=["embedded"])
def server_bin_folder(request: pytest.FixtureRequest) -> Path | None:
    return request.param
