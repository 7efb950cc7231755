"""The nodes of the map: partners, components, queues and mailboxes, receivers and stores."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from postroad.bus import ConsumerStatus
from postroad.console.flow_map import Edge, Map, Node
from postroad.console.history import posted_per_second
from postroad.console.markup import address, count_of, number, rate
from postroad.console.pages import is_there
from postroad.console.rates import Rates
from postroad.console.view import AWAY, View

MAX_QUEUES = 8
MAX_ENTRIES = 4
PARTNERS, COMPONENTS, PLACES, RECEIVERS = range(4)


async def flow_of(view: View) -> Map:
    """Return the map of all components. Read-only, from cached values."""
    t = view.t
    titles = ("overview.partners", "overview.components", "overview.places", "overview.receivers")
    flow = Map([t(title) for title in titles], unit=t("unit.per_second"))
    rates: Rates = view.context.more.setdefault("rates", Rates())
    components: tuple[tuple[str, Callable[[View, Map, Rates], Awaitable[None]]], ...] = (
        ("postroad.exchange", _exchange),
        ("postroad.intake", _intake),
        ("postroad.coordination", _coordination),
    )
    for package, add in components:
        if is_there(package):
            # A component whose database is unreachable is omitted.
            with contextlib.suppress(*AWAY):
                await add(view, flow, rates)
    _bus(view, flow, await view.status())
    if is_there("postroad.bridge.status"):
        await _bridges(view, flow)
    return flow


async def _exchange(view: View, flow: Map, rates: Rates) -> None:
    from postroad.console.pages.exchange_parts import databases, traffic

    found = list(await databases(view))[:MAX_ENTRIES]
    if not found:
        return
    t = view.t
    flow.nodes.append(Node("x-clients", PARTNERS, t("overview.clients"), "HTTP"))
    flow.nodes.append(Node("exchange", COMPONENTS, t("nav.exchange"), "", "", address("exchange")))
    moved = await traffic(view)
    total = 0.0
    for one in found:
        name = one["id"]
        moving = moved.get(name, {"received": 0, "per_second": 0})
        incoming = rates.of(f"exchange.{name}", float(moving["received"]))
        total += incoming
        flow.nodes.append(
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
        flow.nodes.append(
            Node(
                f"erp-{name}",
                RECEIVERS,
                f"ERP {name}",
                t.state((one["process_state"] or "idle").lower()),
            )
        )
        flow.edges.append(Edge("exchange", f"x-{name}", incoming))
        flow.edges.append(Edge(f"x-{name}", f"erp-{name}", float(moving["per_second"])))
    flow.edges.append(Edge("x-clients", "exchange", total))


async def _intake(view: View, flow: Map, rates: Rates) -> None:
    from postroad.console.pages.intake_parts import counts, servers

    found = list(await servers(view))
    if not found:
        return
    t = view.t
    counted = await counts(view)
    failed = counted["failed"]
    flow.nodes.append(
        Node(
            "intake",
            COMPONENTS,
            t("nav.intake"),
            f"{t.state('failed')}: {failed}" if failed else "",
            "",
            address("intake"),
            is_bad=failed > 0,
        )
    )
    total = rates.of("intake.completed", counted["completed"])
    flow.nodes.append(
        Node("store", PLACES, t("overview.store"), number(counted["completed"]), "store",
             address("intake", "files"))
    )  # fmt: skip
    flow.edges.append(Edge("intake", "store", total))
    for one in found[:MAX_ENTRIES]:
        flow.nodes.append(
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
        flow.edges.append(Edge(f"s-{one['id']}", "intake", speed))


async def _coordination(view: View, flow: Map, rates: Rates) -> None:
    from postroad.console.pages.coordination_parts import newest_position, readers

    found = list(await readers(view))[:MAX_ENTRIES]
    if not found:
        return
    t = view.t
    flow.nodes.append(Node("writer", PARTNERS, t("overview.writer"), "", "store"))
    flow.nodes.append(
        Node("coordination", COMPONENTS, t("nav.coordination"), "", "", address("coordination"))
    )
    written = rates.of("coordination", await newest_position(view))
    for one in found:
        speed = rates.of(f"reader.{one['reader']}", one["finished_to"])
        flow.nodes.append(
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
        flow.edges.append(Edge("coordination", f"r-{one['reader']}", speed))
    flow.edges.append(Edge("writer", "coordination", written))


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
    shown = sorted(ranked[:MAX_QUEUES])
    flow.nodes.append(
        Node(
            "bus",
            COMPONENTS,
            t("nav.bus"),
            t.plural("overview.queues", len(queues)),
            "",
            address("bus"),
        )
    )
    for name in shown:
        rows = queues[name]
        posted = posted_per_second(rows)
        consumed = sum(one.consumed_per_second or 0 for one in rows)
        flow.nodes.append(
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
        flow.edges.append(Edge("bus", f"q-{name}", posted))
        consumers = ", ".join(one.consumer for one in rows)
        flow.nodes.append(
            Node(f"c-{name}", RECEIVERS, consumers, f"{name} · {rate(consumed)}{flow.unit}", "",
                 address("bus", "queues", name))
        )  # fmt: skip
        flow.edges.append(Edge(f"q-{name}", f"c-{name}", consumed))
    if len(queues) > len(shown):
        more = t.plural("overview.more_queues", len(queues) - len(shown))
        flow.nodes.append(Node("q-more", PLACES, more, "", "queue", address("bus")))
        flow.edges.append(Edge("bus", "q-more"))


def _queue_note(view: View, rows: Sequence[ConsumerStatus]) -> str:
    waiting = view.t("overview.messages", count=number(max(one.depth for one in rows)))
    dead = [one.dmq for one in rows]
    return f"{view.t.state('dead')}: {count_of(dead)} · {waiting}" if any(dead) else waiting


async def _bridges(view: View, flow: Map) -> None:
    from postroad.console.pages.bridges import bridges, place_name

    for one in list(await bridges(view))[:MAX_ENTRIES]:
        flow.nodes.append(
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
        source = f"q-{one.queue}" if any(n.id == f"q-{one.queue}" for n in flow.nodes) else "bus"
        flow.edges.append(Edge(source, f"b-{one.name}", one.per_second))
