"""The message flow as a picture: nodes in columns, edges between them, rates on the edges. Pure.

The picture is drawn once. The browser updates its figures (rates, notes, problems) in place,
so that a refresh does not restart the animation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from postroad.console.markup import Markup, element, joined

WIDTH, NODE_WIDTH, NODE_HEIGHT, GAP, TOP = 1180, 190, 46, 16, 34
# Widths of letters in names and in the notes below them.
NAME_LETTER, NOTE_LETTER, PADDING = 8.0, 6.5, 20


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the map: a partner, a component, a queue, a receiver."""

    id: str
    column: int
    name: str
    note: str = ""
    kind: str = ""
    href: str | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """Messages per second from one node to another."""

    source: str
    target: str
    rate: float | None = None


@dataclass
class Map:
    """The whole map; `titles` are those of the columns."""

    titles: Sequence[str]
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    unit: str = "/s"

    def node(self, id_: str, column: int, name: str, note: str = "", **more: Any) -> None:
        """Add a node; `more` are the other fields of `Node`."""
        self.nodes.append(Node(id_, column, name, note, **more))

    def edge(self, source: str, target: str, rate: float | None = None) -> None:
        """Add an edge."""
        self.edges.append(Edge(source, target, rate))

    def rate(self, edge: Edge) -> str:
        """Return the label of an edge; empty if there is no traffic."""
        value = edge.rate
        if not value:
            return ""
        return f"{value:.0f}{self.unit}" if value >= 10 else f"{value:.1f}{self.unit}"

    @property
    def shape(self) -> tuple[object, ...]:
        """The facts that require a new picture when they change."""
        return (
            tuple((node.id, node.column, node.name, node.is_bad) for node in self.nodes),
            tuple((edge.source, edge.target) for edge in self.edges),
        )


def draw(flow: Map, label: str) -> Markup:
    """Draw the picture with the current rates and notes."""
    places = _places(flow)
    height = max((y for _, y in places.values()), default=TOP) + NODE_HEIGHT + GAP
    columns = max(len(flow.titles) - 1, 1)
    step = (WIDTH - NODE_WIDTH) / columns
    titles = [
        element("text", title, x=index * step + 2, y=18, class_="column-title")
        for index, title in enumerate(flow.titles)
    ]
    edges = [
        _edge(flow, index, places)
        for index, edge in enumerate(flow.edges)
        if edge.source in places and edge.target in places
    ]
    nodes = [_node(node, places[node.id]) for node in flow.nodes]
    box = f"-4 0 {WIDTH + 8} {height:.0f}"
    parts = (titles, edges, nodes)
    return element("svg", *parts, viewBox=box, role="group", aria_label=label, class_="wide")


def draw_list(flow: Map, label: str) -> Markup:
    """Draw the map for a phone, as a list of its nodes; the same figures update it."""
    lines = []
    for node in sorted(flow.nodes, key=lambda node: (not node.is_bad, node.column)):
        rates = [
            element("span", flow.rate(edge), class_="rate", data_rate=index)
            for index, edge in enumerate(flow.edges)
            if edge.target == node.id
        ]
        name = element("a", node.name, href=node.href) if node.href else node.name
        note = element("span", node.note, class_="sub note")
        class_ = "bad" if node.is_bad else ""
        lines.append(element("li", name, note, *rates, class_=class_, data_node=node.id))
    return element("ol", *lines, class_="narrow", aria_label=label)


def figures(flow: Map) -> tuple[dict[str, object], dict[str, object]]:
    """Return the changing figures: edges and nodes by their ids in the picture."""
    edges: dict[str, object] = {
        str(index): {"label": flow.rate(edge), "rate": edge.rate or 0.0}
        for index, edge in enumerate(flow.edges)
    }
    nodes: dict[str, object] = {
        node.id: {"note": node.note, "bad": node.is_bad} for node in flow.nodes
    }
    return edges, nodes


def _places(flow: Map) -> dict[str, tuple[float, float]]:
    columns = max(len(flow.titles) - 1, 1)
    by_column: dict[int, list[Node]] = {}
    # Nodes with problems come first.
    for node in sorted(flow.nodes, key=lambda node: not node.is_bad):
        by_column.setdefault(node.column, []).append(node)
    tallest = max((len(nodes) for nodes in by_column.values()), default=1)
    height = tallest * (NODE_HEIGHT + GAP)
    places = {}
    for column, nodes in by_column.items():
        step = height / len(nodes)
        for index, node in enumerate(nodes):
            y = TOP + step * index + (step - NODE_HEIGHT - GAP) / 2
            places[node.id] = (column * (WIDTH - NODE_WIDTH) / columns, y)
    return places


def _edge(flow: Map, index: int, places: dict[str, tuple[float, float]]) -> Markup:
    edge = flow.edges[index]
    x1, y1 = places[edge.source]
    x2, y2 = places[edge.target]
    if x2 > x1:
        x1 += NODE_WIDTH
    elif x2 < x1:
        x2 += NODE_WIDTH
    y1, y2 = y1 + NODE_HEIGHT / 2, y2 + NODE_HEIGHT / 2
    bend = (x2 - x1) * 0.45 if x2 != x1 else 60
    path = (
        f"M{x1:.0f} {y1:.0f} C{x1 + bend:.0f} {y1:.0f} {x2 - bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    )
    # Labels sit near the target, where edges that leave one node have parted.
    x, y = f"{x1 + (x2 - x1) * 0.6:.0f}", f"{y1 + (y2 - y1) * 0.65 - 5:.0f}"
    line = element("path", d=path, class_="edge")
    moving = "flow moving" if edge.rate else "flow"
    dots = element("path", d=path, class_=moving, data_flow=index)
    named = {"class_": "rate", "text_anchor": "middle", "data_rate": index}
    return joined((line, dots, element("text", flow.rate(edge), x=x, y=y, **named)))


def _node(node: Node, place: tuple[float, float]) -> Markup:
    letters = int((NODE_WIDTH - PADDING) / NAME_LETTER)
    note_letters = int((NODE_WIDTH - PADDING) / NOTE_LETTER)
    inner = joined(
        (
            element("rect", width=NODE_WIDTH, height=NODE_HEIGHT, rx=10),
            element("text", _cut(node.name, letters), x=12, y=20),
            element("text", _cut(node.note, note_letters), x=12, y=36, class_="sub"),
        )
    )
    return element(
        "g",
        element("title", f"{node.name} {node.note}".strip()),
        element("a", inner, href=node.href) if node.href else inner,
        class_=f"node {node.kind}{' bad' if node.is_bad else ''}",
        transform=f"translate({place[0]:.0f} {place[1]:.0f})",
        data_node=node.id,
        data_letters=note_letters,
    )


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
