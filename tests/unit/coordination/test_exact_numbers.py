"""JSON numbers of images are read exactly."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format

from postroad.coordination.calls import read_exactly

JSONB = psycopg.adapters.types["jsonb"].oid


def _loader() -> Any:
    cursor: Any = SimpleNamespace(adapters=AdaptersMap(psycopg.adapters), connection=None)
    read_exactly(cursor)
    return cursor.adapters.get_loader(JSONB, Format.TEXT)


def test_fractions_and_long_integers_are_decimals() -> None:
    found = _loader()(JSONB).load(b"[1.10, 7, %s]" % (b"9" * 5_000))
    assert found == [Decimal("1.10"), 7, Decimal("9" * 5_000)]


def test_all_cursors_share_the_classes_that_the_driver_keeps() -> None:
    assert _loader() is _loader()
