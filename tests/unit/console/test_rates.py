"""Rates: of posts once per queue, of edges in the direction in which they point."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from postroad.bus import ConsumerStatus
from postroad.console.cache import Cache
from postroad.console.catalogue import texts
from postroad.console.history import History, posted_per_second
from postroad.console.pages.flow import Rates, flow_of
from postroad.operate import Resource
from tests.unit.console.test_cache import HandClock


def standing(queue: str, consumer: str, posted: float, consumed: float) -> ConsumerStatus:
    return ConsumerStatus(
        queue=queue,
        consumer=consumer,
        depth=5,
        ready=5,
        delayed=0,
        leased=0,
        dmq=0,
        oldest_age=None,
        posted_per_second=posted,
        consumed_per_second=consumed,
        is_estimate=False,
        blocked=0,
        died_per_second=0.0,
        expired_per_second=0.0,
        rejected_per_second=0.0,
    )


FOUND = [
    standing("orders", "one", 10.0, 10.0),
    standing("orders", "two", 10.0, 4.0),
    standing("bills", "one", 3.0, 3.0),
]


def test_a_post_counts_once_however_many_consumers_hear_it() -> None:
    assert posted_per_second(FOUND) == 13.0


def test_the_chart_counts_posts_per_queue_too() -> None:
    history = History(SimpleNamespace(), Cache(), HandClock())  # type: ignore[arg-type]
    history._add(FOUND)
    (point,) = history.of()
    assert (point["posted"], point["consumed"]) == (13.0, 17.0)


class Watcher:
    """A page that sees what a test says."""

    def __init__(self, clock: HandClock) -> None:
        self.t = texts("en")
        self.found: dict[object, Any] = {}
        self.consumers = FOUND

        self.context = SimpleNamespace(
            more={"rates": Rates(clock)},
            connections=None,
        )

    async def status(self) -> list[ConsumerStatus]:
        return self.consumers

    async def cached(self, key: object, _: Callable[[], Awaitable[Any]], __: float = 2.0) -> Any:
        return self.found[key]

    async def rows(self, resource: Resource, **_: object) -> Any:
        return self.found[resource.name]

    async def load(self, key: object, *_: object, **__: object) -> Any:
        return self.found[key]

    def see(self, *, arrived: int, gone: int) -> None:
        """Let so much have arrived at every component, and so much have left it."""
        self.found = {
            "exchange.databases": [
                {"id": "sales", "queued": arrived - gone, "leased": 0, "in_doubt": 0, "parked": 0,
                 "process_state": None}
            ],
            "exchange.traffic": [{"id": "sales", "received": arrived, "per_second": gone / 10}],
            "intake.servers": [
                {"id": 1, "name": "files", "problem": None, "waiting": arrived - gone, "moving": 0,
                 "completed": gone, "failed": 0}
            ],
            "intake.counts": {"failed": 0, "completed": gone},
            "coordination.readers": [
                {"reader": "lists", "finished_to": gone, "behind": arrived - gone, "parked": 0}
            ],
            "coordination.events": [{"position": arrived}],
            "bridge.bridges": [],
        }  # fmt: skip


async def test_what_comes_in_and_what_goes_out_have_rates_of_their_own() -> None:
    clock = HandClock()
    view = Watcher(clock)
    view.see(arrived=100, gone=0)
    await flow_of(view)  # type: ignore[arg-type]
    clock.seconds += 10
    view.see(arrived=200, gone=20)
    road = await flow_of(view)  # type: ignore[arg-type]
    rates = {(edge.source, edge.target): edge.rate for edge in road.edges}
    for incoming in (
        ("x-clients", "exchange"),
        ("exchange", "x-sales"),
        ("s-1", "intake"),
        ("writer", "coordination"),
    ):
        assert rates[incoming] == 10.0
    for outgoing in (("x-sales", "erp-sales"), ("intake", "store"), ("coordination", "r-lists")):
        assert rates[outgoing] == 2.0
    assert rates["bus", "q-orders"] == 10.0
    assert rates["q-orders", "c-orders"] == 14.0


async def test_a_queue_with_dead_messages_is_on_the_map_before_busier_ones() -> None:
    view = Watcher(HandClock())
    view.see(arrived=0, gone=0)
    busy = [standing(f"busy{number}", "one", 100.0, 100.0) for number in range(12)]
    view.consumers = [*busy, replace(standing("quiet", "one", 0.0, 0.0), dmq=299)]
    road = await flow_of(view)  # type: ignore[arg-type]
    (node,) = [node for node in road.nodes if node.id == "q-quiet"]
    assert node.is_bad
    assert "299" in node.note
