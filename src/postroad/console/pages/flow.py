"""The nodes of the map: partners, components, queues and mailboxes, receivers and stores."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from postroad.bridge.resources import STATUS
from postroad.bus import ConsumerStatus
from postroad.clock import SYSTEM_CLOCK, Clock
from postroad.console.flow_map import Map
from postroad.console.history import posted_per_second
from postroad.console.markup import address, count_of, number, rate
from postroad.console.pages.bridges import place_name
from postroad.console.pages.coordination import newest_position, readers
from postroad.console.view import AWAY, View
from postroad.exchange import status as exchange
from postroad.exchange.resources import DATABASES
from postroad.intake import status as intake
from postroad.intake.resources import SERVERS

MAX_QUEUES = 8
MAX_ENTRIES = 4
PARTNERS, COMPONENTS, PLACES, RECEIVERS = range(4)


async def flow_of(view: View) -> Map:
    """Return the map of all components. Read-only, from cached values."""
    t = view.t
    titles = ("overview.partners", "overview.components", "overview.places", "overview.receivers")
    flow = Map([t(title) for title in titles], unit=t("unit.per_second"))
    rates: Rates = view.context.more.setdefault("rates", Rates())
    for add in (_exchange, _intake, _coordination):
        # A component whose database is unreachable is omitted.
        with contextlib.suppress(*AWAY):
            await add(view, flow, rates)
    _bus(view, flow, await view.status())
    await _bridges(view, flow)
    return flow


async def _exchange(view: View, flow: Map, rates: Rates) -> None:
    found = (await view.rows(DATABASES))[:MAX_ENTRIES]
    if not found:
        return
    t = view.t
    flow.node("x-clients", PARTNERS, t("overview.clients"), "HTTP")
    flow.node("exchange", COMPONENTS, t("nav.exchange"), href=address("exchange"))
    traffic = await view.load("exchange.traffic", exchange.traffic)
    moved = {one["id"]: one for one in traffic}
    total = 0.0
    for one in found:
        name = one["id"]
        moving = moved.get(name, {"received": 0, "per_second": 0})
        incoming = rates.of(f"exchange.{name}", float(moving["received"]))
        total += incoming
        waiting = t("overview.messages", count=number(one["queued"] + one["leased"]))
        flow.node(
            f"x-{name}",
            PLACES,
            t("overview.mailbox", name=name),
            waiting,
            kind="store",
            href=address("exchange", database=name),
            is_bad=bool(one["in_doubt"] or one["parked"]),
        )
        state = t.state((one["process_state"] or "idle").lower())
        flow.node(f"erp-{name}", RECEIVERS, f"ERP {name}", state)
        flow.edge("exchange", f"x-{name}", incoming)
        flow.edge(f"x-{name}", f"erp-{name}", float(moving["per_second"]))
    flow.edge("x-clients", "exchange", total)


async def _intake(view: View, flow: Map, rates: Rates) -> None:
    found = await view.rows(SERVERS)
    if not found:
        return
    t = view.t
    counted = await view.load("intake.counts", intake.counts)
    done, failed = counted["completed"], counted["failed"]
    note = f"{t.state('failed')}: {failed}" if failed else ""
    place = address("intake")
    flow.node("intake", COMPONENTS, t("nav.intake"), note, href=place, is_bad=failed > 0)
    place = address("intake", "files")
    flow.node("store", PLACES, t("overview.store"), number(done), kind="store", href=place)
    flow.edge("intake", "store", rates.of("intake.completed", done))
    for one in found[:MAX_ENTRIES]:
        node, problem = f"s-{one['id']}", one["problem"]
        note = problem or f"SFTP · {number(one['completed'])}"
        place = address("intake", "servers", one["name"])
        flow.node(node, PARTNERS, one["name"], note, href=place, is_bad=bool(problem))
        arrived = one["waiting"] + one["moving"] + one["completed"] + one["failed"]
        flow.edge(node, "intake", rates.of(f"intake.{one['id']}", arrived))


async def _coordination(view: View, flow: Map, rates: Rates) -> None:
    found = (await readers(view))[:MAX_ENTRIES]
    if not found:
        return
    t, place = view.t, address("coordination")
    flow.node("writer", PARTNERS, t("overview.writer"), kind="store")
    flow.node("coordination", COMPONENTS, t("nav.coordination"), href=place)
    written = rates.of("coordination", await newest_position(view))
    for one in found:
        node, name = f"r-{one['reader']}", t("overview.replica", name=one["reader"])
        note = f"{t('coordination.behind')}: {one['behind']}"
        is_bad = one["parked"] > 0
        flow.node(node, PLACES, name, note, kind="store", href=place, is_bad=is_bad)
        flow.edge("coordination", node, rates.of(f"reader.{one['reader']}", one["finished_to"]))
    flow.edge("writer", "coordination", written)


def _bus(view: View, flow: Map, found: Sequence[ConsumerStatus]) -> None:
    t = view.t
    queues: dict[str, list[ConsumerStatus]] = {}
    for one in found:
        queues.setdefault(one.queue, []).append(one)
    if not queues:
        return
    # Queues with dead messages come first: they need attention.
    ranked = sorted(
        queues,
        key=lambda name: (
            -sum(one.dmq for one in queues[name]),
            -posted_per_second(queues[name])
            - sum(one.consumed_per_second or 0 for one in queues[name]),
            -sum(one.depth for one in queues[name]),
            name,
        ),
    )
    # Not sorted by rate, because the picture would be drawn again with every change.
    shown = sorted(ranked[:MAX_QUEUES])
    counted = t.plural("overview.queues", len(queues))
    flow.node("bus", COMPONENTS, t("nav.bus"), counted, href=address("bus"))
    for name in shown:
        rows, place = queues[name], address("bus", "queues", name)
        consumed = sum(one.consumed_per_second or 0 for one in rows)
        note, is_bad = _queue_note(view, rows), any(one.dmq for one in rows)
        flow.node(f"q-{name}", PLACES, name, note, kind="queue", href=place, is_bad=is_bad)
        flow.edge("bus", f"q-{name}", posted_per_second(rows))
        consumers = ", ".join(one.consumer for one in rows)
        speed = f"{name} · {rate(consumed)}{flow.unit}"
        flow.node(f"c-{name}", RECEIVERS, consumers, speed, href=place)
        flow.edge(f"q-{name}", f"c-{name}", consumed)
    if len(queues) > len(shown):
        more = t.plural("overview.more_queues", len(queues) - len(shown))
        flow.node("q-more", PLACES, more, kind="queue", href=address("bus"))
        flow.edge("bus", "q-more")


def _queue_note(view: View, rows: Sequence[ConsumerStatus]) -> str:
    waiting = view.t("overview.messages", count=number(max(one.depth for one in rows)))
    dead = [one.dmq for one in rows]
    return f"{view.t.state('dead')}: {count_of(dead)} · {waiting}" if any(dead) else waiting


async def _bridges(view: View, flow: Map) -> None:
    for one in (await view.rows(STATUS, age=3))[:MAX_ENTRIES]:
        node, name = f"b-{one['name']}", view.t("overview.bridge", name=one["name"])
        # The page of bridges shows the details, in English.
        is_bad = bool(one["problem"])
        note = view.t.state("bad") if is_bad else place_name(one["target"])
        flow.node(node, RECEIVERS, name, note, href=address("bridges"), is_bad=is_bad)
        source = f"q-{one['queue']}"
        is_shown = any(shown.id == source for shown in flow.nodes)
        flow.edge(source if is_shown else "bus", node, one["per_second"])


SPAN_SECONDS = 12.0


class Rates:
    """Stores the last values of each counter."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def of(self, name: str, value: float) -> float:
        """Record a value and return the recent growth of the counter per second."""
        now = self._clock.monotonic()
        seen = self._seen.setdefault(name, deque())
        if seen and value < seen[-1][1]:
            # The counter was reset.
            seen.clear()
        if not seen or now - seen[-1][0] > 0.5:
            seen.append((now, value))
        while len(seen) > 2 and now - seen[0][0] > SPAN_SECONDS:
            seen.popleft()
        passed = seen[-1][0] - seen[0][0]
        return (seen[-1][1] - seen[0][1]) / passed if passed > 0 else 0.0
