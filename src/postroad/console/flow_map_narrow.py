"""The flow map for phones: one component below another, senders above, targets below.

```
[partner] [partner]
    └──┬─────┘
[component        ]
 ├─[place]──[receiver]
 └─[place]──[receiver]
```

It has the same nodes and edges as the wide picture, so the same figures update both. Pure.
"""

from __future__ import annotations

from postroad.console.flow_map import Map, Node, draw_edge, draw_node, picture
from postroad.console.markup import Markup

WIDTH, HALF, HEIGHT, GAP, INDENT, AISLE = 360, 150, 46, 20, 20, 46
ROOM_COLUMN = 1


class _Pen:
    """Draws from top to bottom and records what has been drawn."""

    def __init__(self, flow: Map) -> None:
        self._flow = flow
        self._nodes = {node.id: node for node in flow.nodes}
        self._edges = list(enumerate(flow.edges))
        self._lines: list[Markup] = []
        self._boxes: list[Markup] = []
        self.y = 8.0

    def from_(self, source: str) -> list[tuple[int, Node]]:
        return [
            (index, self._nodes[edge.target])
            for index, edge in self._edges
            if edge.source == source and edge.target in self._nodes
        ]

    def to(self, target: str) -> list[tuple[int, Node]]:
        return [
            (index, self._nodes[edge.source])
            for index, edge in self._edges
            if edge.target == target and edge.source in self._nodes
        ]

    def box(self, node: Node, x: float, y: float, width: float) -> None:
        self._boxes.append(draw_node(node, (x, y), width))

    def line(self, index: int, path: str, label: tuple[float, float]) -> None:
        self._lines.append(draw_edge(self._flow, index, path, label))

    def component(self, component: Node) -> None:
        """Draw a component with its neighbours."""
        self._partners(component)
        top = self.y
        self.box(component, 0, top, WIDTH)
        self.y += HEIGHT + GAP
        for index, place in self.from_(component.id):
            middle = self.y + HEIGHT / 2
            path = f"M8 {top + HEIGHT} V{middle:.0f} H{INDENT}"
            self.line(index, path, (INDENT + 24, self.y - 6))
            self._row(place)
        self.y += GAP

    def _partners(self, component: Node) -> None:
        found = self.to(component.id)
        rows = (len(found) + 1) // 2
        bottom = self.y + rows * (HEIGHT + GAP) + 12
        for number, (index, partner) in enumerate(found):
            x = (WIDTH - HALF) * (number % 2)
            y = self.y + (number // 2) * (HEIGHT + GAP)
            self.box(partner, x, y, HALF)
            middle = x + HALF / 2
            # Edges from upper rows pass between the two columns.
            aisle = WIDTH / 2 + (6 if number % 2 else -6)
            path = (
                f"M{middle:.0f} {y + HEIGHT:.0f} V{bottom:.0f}"
                if number // 2 == rows - 1
                else f"M{middle:.0f} {y + HEIGHT / 2:.0f} H{aisle:.0f} V{bottom:.0f}"
            )
            self.line(index, path, (middle, y + HEIGHT + 12))
        if found:
            self.y = bottom

    def _row(self, place: Node) -> None:
        """Draw a place and, beside it, the receivers of its messages."""
        y = self.y
        self.box(place, INDENT, y, HALF)
        receivers = self.from_(place.id)
        for number, (index, receiver) in enumerate(receivers):
            lower = y + number * (HEIGHT + GAP)
            x, start = INDENT + HALF + AISLE, INDENT + HALF
            path = f"M{start} {y + HEIGHT / 2:.0f} H{start + 12} V{lower + HEIGHT / 2:.0f} H{x}"
            self.box(receiver, x, lower, WIDTH - x)
            self.line(index, path, (start + AISLE / 2, lower + HEIGHT / 2 - 5))
        self.y += max(len(receivers), 1) * (HEIGHT + GAP)

    def picture(self, label: str) -> Markup:
        parts = self._lines, self._boxes
        return picture(*parts, width=WIDTH, height=self.y, label=label, class_="narrow")


def draw_narrow(flow: Map, label: str) -> Markup:
    """Draw the picture for a phone, with the current rates and notes."""
    pen = _Pen(flow)
    for node in flow.nodes:
        if node.column == ROOM_COLUMN:
            pen.component(node)
    return pen.picture(label)
