from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from postroad import logs


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    structlog.reset_defaults()


def test_both_kinds_of_logger_end_in_one_json_stream() -> None:
    stream = io.StringIO()
    logs.set_up(level="info", shape="auto", stream=stream)
    logging.getLogger("postroad.bus").warning("lease_lost", extra={"iid": "orders.1@x"})
    structlog.get_logger("postroad.exchange").info("accepted", mailbox="north")
    structlog.get_logger("postroad.exchange").debug("hidden")
    one, other = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (one["event"], one["iid"], one["level"]) == ("lease_lost", "orders.1@x", "warning")
    assert (other["event"], other["mailbox"], other["logger"]) == (
        "accepted",
        "north",
        "postroad.exchange",
    )


def test_a_terminal_gets_lines_for_people() -> None:
    stream = io.StringIO()
    logs.set_up(shape="terminal", stream=stream)
    logging.getLogger("postroad").warning("lease_lost", extra={"iid": "orders.1@x"})
    assert "lease_lost" in stream.getvalue()
    assert "orders.1@x" in stream.getvalue()
