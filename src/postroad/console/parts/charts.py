"""Line charts over time, drawn by ECharts in the colours of the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from nicegui import ui

from postroad.console.markup import NOTHING, Markup, element
from postroad.console.view import View

COLOURS = ("#1098ad", "#2b8a3e", "#e8890c", "#e03131", "#7950f2")
Line = Sequence[tuple[datetime, float]]


async def line_chart(
    view: View,
    title: str,
    lines: Callable[[], Awaitable[Mapping[str, Line]]],
    *,
    unit: str = "",
    restarts: Sequence[tuple[datetime, str]] = (),
) -> None:
    """Draw lines that are updated with every refresh, and vertical lines at restarts."""

    async def options() -> dict[str, Any]:
        return _options(await lines(), unit, restarts)

    def change(fresh: dict[str, Any]) -> None:
        chart.options.update(fresh)
        chart.update()

    first = await view.watch(options, change)
    with ui.element("section").classes("card"):
        ui.html(element("h2", title), sanitize=False)
        chart = ui.echart(first).classes("chart")
        chart.props(f'role="img" aria-label="{title}"')


def _options(
    lines: Mapping[str, Line], unit: str, restarts: Sequence[tuple[datetime, str]]
) -> dict[str, Any]:
    grey = {"color": "#8796a5"}
    marked = {
        "symbol": "none",
        "lineStyle": {**grey, "type": "dashed"},
        "label": {**grey, "formatter": "{b}", "position": "insideEndTop"},
        "data": [{"xAxis": at.isoformat(), "name": name} for at, name in restarts],
    }
    icon = {"icon": "roundRect", "itemWidth": 12, "itemHeight": 4}
    label, least = f"{{value}} {unit}".strip(), 0 if unit else 1
    return {
        "animation": False,
        "color": list(COLOURS),
        "grid": {"left": 8, "right": 12, "top": 34, "bottom": 4, "containLabel": True},
        "legend": {"top": 0, "left": 0, **icon, "textStyle": grey},
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "time",
            "axisLabel": {**grey, "hideOverlap": True},
            "axisLine": {"lineStyle": grey},
            "splitNumber": 4,
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "minInterval": least,
            "axisLabel": {**grey, "formatter": label},
            "splitLine": {"lineStyle": {"color": "#8796a533"}},
        },
        "series": [
            {
                "name": name,
                "type": "line",
                # A line needs two points.
                "showSymbol": len(points) < 2,
                "lineStyle": {"width": 2},
                "areaStyle": {"opacity": 0.08},
                "data": [
                    [at.isoformat(timespec="milliseconds"), round(value, 3)] for at, value in points
                ],
                **({"markLine": marked} if restarts and not place else {}),
            }
            for place, (name, points) in enumerate(lines.items())
        ],
    }


def spark(values: Sequence[float], label: str) -> Markup:
    """Draw a small line without axes."""
    if len(values) < 2:
        return element("span", NOTHING, class_="note")
    most = max(*values, 1e-9)
    step = 118 / (len(values) - 1)
    points = " L".join(
        f"{1 + index * step:.1f} {26 - 24 * value / most:.1f}" for index, value in enumerate(values)
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 120 28" role="img" aria-label="{}"><path d="M{}"/></svg>'
    ).format(label, points)
