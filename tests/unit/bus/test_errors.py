from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

import postroad.bus
from postroad.bus import BusError, ConsumerNotFound, NotInstalled, Park, QueueNotFound, Retry
from postroad.bus.errors import translate

LEAVES = sorted(BusError.__subclasses__(), key=lambda leaf: leaf.code)


class Refused(psycopg.DatabaseError):
    """A driver's error with a code of our choice."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("it was refused")
        self.sqlstate = sqlstate


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.code)
def test_every_error_survives_pickling(leaf: type[BusError]) -> None:
    error: Any = leaf("what happened", hint="what to do", queue="orders")
    copy: Any = pickle.loads(pickle.dumps(error))
    assert type(copy) is leaf
    assert (str(copy), copy.hint, copy.queue) == ("what happened", "what to do", "orders")
    assert (copy.code, copy.retryable) == (error.code, error.retryable)


def test_outcomes_survive_pickling_too() -> None:
    from datetime import timedelta

    retry = pickle.loads(pickle.dumps(Retry("later", after=timedelta(seconds=3))))
    assert (retry.reason, retry.after) == ("later", timedelta(seconds=3))
    assert pickle.loads(pickle.dumps(Park("no"))).reason == "no"


def codes_of_the_schema() -> list[str]:
    """Find every SQLSTATE that a file of the schema raises."""
    folder = Path(postroad.bus.__file__).parent / "sql"
    texts = (path.read_text(encoding="utf-8") for path in folder.rglob("*.sql"))
    return sorted({code for text in texts for code in re.findall(r"errcode = '(MB\d+)'", text)})


@pytest.mark.parametrize("code", codes_of_the_schema())
def test_every_code_of_the_schema_has_its_class(code: str) -> None:
    error = translate(Refused(code), queue="orders")
    assert error is not None
    assert error.code == code
    assert error.facts["queue"] == "orders"


def test_a_missing_function_means_a_missing_queue_or_consumer() -> None:
    missing = psycopg.errors.UndefinedFunction()
    assert isinstance(translate(missing, queue="orders"), QueueNotFound)
    assert isinstance(translate(missing, queue="orders", consumer="audit"), ConsumerNotFound)
    assert isinstance(translate(missing), NotInstalled)
    assert isinstance(translate(psycopg.errors.InvalidSchemaName()), NotInstalled)


def test_errors_of_others_stay_theirs() -> None:
    assert translate(psycopg.errors.DeadlockDetected()) is None
    assert translate(psycopg.OperationalError("gone")) is None


def test_every_leaf_is_exported() -> None:
    for leaf in LEAVES:
        assert leaf.__name__ in postroad.bus.__all__


def test_only_haste_is_worth_the_same_call_again() -> None:
    retryable = {leaf.__name__ for leaf in LEAVES if leaf.retryable}
    assert retryable == {"QueueBusy", "RequestTimedOut"}
