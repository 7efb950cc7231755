"""Both colours have the same names, signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from postroad.bus import AsyncBus, AsyncSubscription, AsyncWorker, Bus, Subscription, Worker

PAIRS = [(Bus, AsyncBus), (Worker, AsyncWorker), (Subscription, AsyncSubscription)]
# What a colour has of its own: the hub lives in the event loop, the loop has its own protocols.
OWN = {"__enter__", "__exit__", "__iter__", "__next__"}


def _public(cls: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def _uncoloured(text: str) -> str:
    text = re.sub(r"\basync |\bawait |Async", "", text)
    return text.replace("__a", "__")


@pytest.mark.parametrize(("blocking", "awaiting"), PAIRS[:1] + PAIRS[2:])
def test_both_colours_have_the_same_names(blocking: type, awaiting: type) -> None:
    assert _public(blocking).keys() == _public(awaiting).keys()


def test_both_workers_have_the_same_names() -> None:
    # `signals` and what a service calls itself belong to the service below.
    written = {name for cls in (Worker, AsyncWorker) for name in vars(cls) if name[0] != "_"}
    assert written == {"awaits", "serve", "run", "request_stop"}
    shared = {"start", "ready", "stop", "join", "request_stop", "is_running", "handler"}
    assert shared <= _public(Worker).keys() & _public(AsyncWorker).keys()


@pytest.mark.parametrize(("blocking", "awaiting"), PAIRS)
def test_both_colours_have_the_same_signatures_and_promises(blocking: type, awaiting: type) -> None:
    for name, member in vars(blocking).items():
        if name in {"__init__", *OWN} or not inspect.isfunction(member) or name[0] == "_":
            continue
        other = vars(awaiting)[name]
        assert _uncoloured(str(inspect.signature(other))) == _uncoloured(
            str(inspect.signature(member))
        ), name
        assert inspect.getdoc(other) == inspect.getdoc(member), name
        assert inspect.getdoc(member), name


def test_every_call_of_the_async_bus_is_awaited_but_those_that_only_prepare() -> None:
    plain = {
        name
        for name, member in _public(AsyncBus).items()
        if not inspect.iscoroutinefunction(member)
    }
    assert plain == {"subscribe", "using"}
