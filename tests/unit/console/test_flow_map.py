"""The map of the message flow: what is in trouble comes first, in the picture and on a phone."""

from __future__ import annotations

import re

from postroad.console.flow_map import Map, draw, draw_list


def flow() -> Map:
    shown = Map(["Partners", "Components", "Queues"])
    shown.node("shop", 0, "Shop")
    shown.node("erp", 1, "ERP", is_bad=True)
    shown.node("exchange", 1, "Exchange")
    for name in ("bills", "orders", "tickets"):
        shown.node(name, 2, name, is_bad=name == "orders")
    shown.edge("shop", "exchange", 4.0)
    shown.edge("exchange", "orders", 12.0)
    return shown


def test_nodes_in_trouble_are_on_top_of_their_column() -> None:
    picture = str(draw(flow(), "Map"))
    places: dict[float, list[tuple[float, str]]] = {}
    for x, y, name in re.findall(r'translate\((\d+) (\d+)\)" data-node="(\w+)"', picture):
        places.setdefault(float(x), []).append((float(y), name))
    columns = [[name for _, name in sorted(places[x])] for x in sorted(places)]
    assert columns == [["shop"], ["erp", "exchange"], ["orders", "bills", "tickets"]]


def test_the_list_of_a_phone_begins_with_trouble_and_goes_on_by_column() -> None:
    listed = str(draw_list(flow(), "Map"))
    names = re.findall(r'data-node="(\w+)"', listed)
    assert names == ["erp", "orders", "shop", "exchange", "bills", "tickets"]
    # The same figures as in the picture.
    assert re.findall(r'data-rate="(\d)">([^<]+)<', listed) == [("1", "12/s"), ("0", "4.0/s")]
