from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

USERS_TESTS = """
from datetime import timedelta

import psycopg
import pytest

from postroad.bus import Bus

def test_posting_and_consuming(postroad_database):
    with Bus(postroad_database) as bus:
        bus.create_queue("orders")
        iid = bus.post("orders", {"number": "1"})
        assert [message.iid for message in bus.consume("orders")] == [iid]

@pytest.mark.parametrize("again", [1, 2])
def test_each_starts_clean(postroad_connection, again):
    postroad_connection.execute("select mbus.create_queue('orders')")

def test_time_passes_when_told(postroad_clock):
    before = postroad_clock.now()
    postroad_clock.advance(timedelta(days=1))
    assert postroad_clock.now() - before >= timedelta(days=1)
    postroad_clock.reset()
    assert postroad_clock.now() - before < timedelta(hours=1)
"""


def test_users_get_a_real_postgresql(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POSTROAD_TEST_RUN_FOLDER")
    pytester.makepyfile(USERS_TESTS)
    # Of the plugins, schemathesis takes seconds to load and has no use here.
    without = [f"-pno:{name}" for name in ("cacheprovider", "randomly", "schemathesis")]
    result = pytester.runpytest_subprocess(*without)
    result.assert_outcomes(passed=4)
