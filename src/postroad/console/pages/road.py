"""What stands on the map: partners, rooms, queues and mailboxes, receivers and stores."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from postroad.bus import ConsumerStatus
from postroad.console.history import posted_per_second
from postroad.console.markup import address, count_of, number, rate
from postroad.console.pages import is_there
from postroad.console.rates import Rates
from postroad.console.roadmap import Edge, Map, Node
from postroad.console.view import AWAY, View

MAX_QUEUES = 8
MAX_ENTRIES = 4
PARTNERS, ROOMS, PLACES, RECEIVERS = range(4)


async def road_of(view: View) -> Map:
    """Put what is known of all rooms on the map. Read-only, from looks that are shared."""
    t = view.t
    titles = ("overview.partners", "overview.components", "overview.places", "overview.receivers")
    road = Map([t(title) for title in titles], unit=t("unit.per_second"))
    rates: Rates = view.context.more.setdefault("rates", Rates())
    rooms: tuple[tuple[str, Callable[[View, Map, Rates], Awaitable[None]]], ...] = (
        ("postroad.exchange", _exchange),
        ("postroad.intake", _intake),
        ("postroad.coordination", _coordination),
    )
    for package, add in rooms:
        if is_there(package):
            # A room whose own database is away is left out; the others are shown.
            with contextlib.suppress(*AWAY):
                await add(view, road, rates)
    _bus(view, road, await view.status())
    if is_there("postroad.bridge.status"):
        await _bridges(view, road)
    return road


async def _exchange(view: View, road: Map, rates: Rates) -> None:
    from postroad.console.pages.exchange_parts import databases, traffic

    found = list(await databases(view))[:MAX_ENTRIES]
    if not found:
        return
    t = view.t
    road.nodes.append(Node("x-clients", PARTNERS, t("overview.clients"), "HTTP"))
    road.nodes.append(Node("exchange", ROOMS, t("nav.exchange"), "", "", address("exchange")))
    moved = await traffic(view)
    total = 0.0
    for one in found:
        name = one["id"]
        moving = moved.get(name, {"received": 0, "per_second": 0})
        incoming = rates.of(f"exchange.{name}", float(moving["received"]))
        total += incoming
        road.nodes.append(
            Node(
                f"x-{name}",
                PLACES,
                t("overview.mailbox", name=name),
                t("overview.messages", count=number(one["queued"] + one["leased"])),
                "store",
                address("exchange", database=name),
                is_bad=bool(one["in_doubt"] or one["parked"]),
            )
        )
        road.nodes.append(
            Node(
                f"erp-{name}",
                RECEIVERS,
                f"ERP {name}",
                t.state((one["process_state"] or "idle").lower()),
            )
        )
        road.edges.append(Edge("exchange", f"x-{name}", incoming))
        road.edges.append(Edge(f"x-{name}", f"erp-{name}", float(moving["per_second"])))
    road.edges.append(Edge("x-clients", "exchange", total))


async def _intake(view: View, road: Map, rates: Rates) -> None:
    from postroad.console.pages.intake_parts import counts, servers

    found = list(await servers(view))
    if not found:
        return
    t = view.t
    counted = await counts(view)
    failed = counted["failed"]
    road.nodes.append(
        Node(
            "intake",
            ROOMS,
            t("nav.intake"),
            f"{t.state('failed')}: {failed}" if failed else "",
            "",
            address("intake"),
            is_bad=failed > 0,
        )
    )
    total = rates.of("intake.completed", counted["completed"])
    road.nodes.append(
        Node("store", PLACES, t("overview.store"), number(counted["completed"]), "store",
             address("intake", "files"))
    )  # fmt: skip
    road.edges.append(Edge("intake", "store", total))
    for one in found[:MAX_ENTRIES]:
        road.nodes.append(
            Node(
                f"s-{one['id']}",
                PARTNERS,
                one["name"],
                one["problem"] or f"SFTP · {number(one['completed'])}",
                "",
                address("intake", "servers", one["name"]),
                is_bad=bool(one["problem"]),
            )
        )
        arrived = one["waiting"] + one["moving"] + one["completed"] + one["failed"]
        speed = rates.of(f"intake.{one['id']}", arrived)
        road.edges.append(Edge(f"s-{one['id']}", "intake", speed))


async def _coordination(view: View, road: Map, rates: Rates) -> None:
    from postroad.console.pages.coordination_parts import newest_position, readers

    found = list(await readers(view))[:MAX_ENTRIES]
    if not found:
        return
    t = view.t
    road.nodes.append(Node("writer", PARTNERS, t("overview.writer"), "", "store"))
    road.nodes.append(
        Node("coordination", ROOMS, t("nav.coordination"), "", "", address("coordination"))
    )
    written = rates.of("coordination", await newest_position(view))
    for one in found:
        speed = rates.of(f"reader.{one['reader']}", one["finished_to"])
        road.nodes.append(
            Node(
                f"r-{one['reader']}",
                PLACES,
                t("overview.replica", name=one["reader"]),
                f"{t('coordination.behind')}: {one['behind']}",
                "store",
                address("coordination"),
                is_bad=one["parked"] > 0,
            )
        )
        road.edges.append(Edge("coordination", f"r-{one['reader']}", speed))
    road.edges.append(Edge("writer", "coordination", written))


def _bus(view: View, road: Map, found: Sequence[ConsumerStatus]) -> None:
    t = view.t
    queues: dict[str, list[ConsumerStatus]] = {}
    for one in found:
        queues.setdefault(one.queue, []).append(one)
    if not queues:
        return
    # Queues with dead messages come first: they are the ones that somebody has to look at.
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
    shown = sorted(ranked[:MAX_QUEUES])
    road.nodes.append(
        Node(
            "bus", ROOMS, t("nav.bus"), t.plural("overview.queues", len(queues)), "", address("bus")
        )
    )
    for name in shown:
        rows = queues[name]
        posted = posted_per_second(rows)
        consumed = sum(one.consumed_per_second or 0 for one in rows)
        road.nodes.append(
            Node(
                f"q-{name}",
                PLACES,
                name,
                _queue_note(view, rows),
                "queue",
                address("bus", "queues", name),
                is_bad=any(one.dmq for one in rows),
            )
        )
        road.edges.append(Edge("bus", f"q-{name}", posted))
        consumers = ", ".join(one.consumer for one in rows)
        road.nodes.append(
            Node(f"c-{name}", RECEIVERS, consumers, f"{name} · {rate(consumed)}{road.unit}", "",
                 address("bus", "queues", name))
        )  # fmt: skip
        road.edges.append(Edge(f"q-{name}", f"c-{name}", consumed))
    if len(queues) > len(shown):
        more = t.plural("overview.more_queues", len(queues) - len(shown))
        road.nodes.append(Node("q-more", PLACES, more, "", "queue", address("bus")))
        road.edges.append(Edge("bus", "q-more"))


def _queue_note(view: View, rows: Sequence[ConsumerStatus]) -> str:
    waiting = view.t("overview.messages", count=number(max(one.depth for one in rows)))
    dead = [one.dmq for one in rows]
    return f"{view.t.state('dead')}: {count_of(dead)} · {waiting}" if any(dead) else waiting


async def _bridges(view: View, road: Map) -> None:
    from postroad.console.pages.bridges import bridges, place_name

    for one in list(await bridges(view))[:MAX_ENTRIES]:
        road.nodes.append(
            Node(
                f"b-{one.name}",
                RECEIVERS,
                view.t("overview.bridge", name=one.name),
                one.problem or place_name(one.target),
                "",
                address("bridges"),
                is_bad=bool(one.problem),
            )
        )
        source = f"q-{one.queue}" if any(n.id == f"q-{one.queue}" for n in road.nodes) else "bus"
        road.edges.append(Edge(source, f"b-{one.name}", one.per_second))
