from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import postroad
from postroad.errors import PostroadError


def _every_error() -> Iterator[type[PostroadError]]:
    for module in pkgutil.walk_packages(postroad.__path__, "postroad."):
        if module.name.endswith("errors"):
            importlib.import_module(module.name)
    pending = [PostroadError]
    while pending:
        error = pending.pop()
        yield error
        pending += error.__subclasses__()


EVERY_ERROR = sorted(_every_error(), key=lambda error: error.__qualname__)


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda e: f"{e.__module__}.{e.__name__}")
def test_every_error_survives_pickling(error: type[PostroadError]) -> None:
    before = error.__new__(error)
    PostroadError.__init__(before, "it happened", hint="do this", queue="orders")
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is error
    assert (str(after), after.hint, after.queue) == ("it happened", "do this", "orders")
    assert (after.code, after.retryable, after.kind) == (error.code, error.retryable, error.kind)


def test_codes_are_unique() -> None:
    codes = [error.code for error in EVERY_ERROR]
    assert sorted(codes) == sorted(set(codes))


def test_an_unknown_attribute_is_still_unknown() -> None:
    with pytest.raises(AttributeError, match="consumer"):
        _ = PostroadError("x", queue="orders").consumer
