"""Pictures of the results, as small SVG files."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

__all__ = ["draw"]

OURS, THEIRS = "#1f6f8b", "#b8b8b8"
# Text stays text, and ids do not change between runs: small files, quiet differences.
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "postroad",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_BUS_WORDS = ("post", "take", "AsyncWorker", "three", "retained", "coordination", "mbus", "bridge")
_ARMS = ("lease", "transactional", "batch", "cursor")


def draw(folder: Path, name: str, scenario: dict[str, Any]) -> None:
    """Draw a scenario into `<name>.svg`, if it has something to draw."""
    raw = scenario["raw"]
    painter: Callable[[Axes, dict[str, Any]], None] | None = None
    if "rates" in raw:
        painter = _rates
    elif "window_seconds" in raw:
        painter = _windows
    elif "kinds" in raw:
        painter = _held
    elif "median_ms" in raw:
        painter = _backlog
    elif "bytes" in raw:
        painter = _bytes
    elif "clean" in raw:
        painter = _harness
    if painter is None:
        return
    with mpl.rc_context(_STYLE):
        height = 5.0 if painter is _harness else 2.8
        figure, axes = plt.subplots(figsize=(6.4, height), layout="constrained")
        painter(axes, raw)
        axes.set_title(scenario["title"], loc="left", fontsize=10)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _rates(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw medians as bars, each round as a dot."""
    for place, (name, rates) in enumerate(raw["rates"].items()):
        colour = OURS if name.startswith(_BUS_WORDS) else THEIRS
        axes.barh(place, statistics.median(rates), color=colour, height=0.65)
        axes.plot(rates, [place] * len(rates), "k.", markersize=3)
    axes.set_yticks(range(len(raw["rates"])), list(raw["rates"]))
    axes.invert_yaxis()
    axes.set_xlabel("messages a second")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _windows(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw latency over time while the snapshot is held."""
    for shape, colour in (("bus", OURS), ("visibility timeout", THEIRS)):
        seconds = [each["from_second"] + raw["window_seconds"] / 2 for each in raw[shape]]
        for part, style in (("p50_ms", "--"), ("p99_ms", "-")):
            axes.plot(
                seconds,
                [each[part] for each in raw[shape]],
                style,
                color=colour,
                marker="o",
                markersize=3,
                label=f"{shape}, {part[:3]}",
            )
    axes.set_yscale("log")
    axes.set_xlabel("seconds since the snapshot was taken")
    axes.set_ylabel("delivery latency, ms")
    axes.legend(frameon=False, fontsize=8)


def _held(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw the latency of each kind of load, window by window."""
    for kind, found in raw["kinds"].items():
        late = [window["p99_ms"] for window in found["windows"]]
        ends = [raw["seconds"] * number for number in range(1, len(late) + 1)]
        axes.plot(ends, late, marker="o", markersize=3, label=kind)
    axes.set_yscale("log")
    axes.set_xlabel("seconds since the snapshot was taken")
    axes.set_ylabel("p99 latency, ms")
    axes.legend(frameon=False, fontsize=8)


def _backlog(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw the time of a take against what waits in the queue."""
    for amount, medians in raw["median_ms"].items():
        axes.plot(
            [int(backlog) for backlog in medians],
            list(medians.values()),
            marker="o",
            color=OURS if amount == "100" else "#7fb2c3",
            label=f"take({amount})",
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("messages in the queue")
    axes.set_ylabel("median, ms")
    axes.legend(frameon=False, fontsize=8)


def _bytes(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw log volume per message by batch size."""
    ours, theirs = raw["bytes"]["bus"], raw["bytes"]["visibility timeout"]
    labels = list(ours)
    axes.bar([place - 0.2 for place in range(len(labels))], list(ours.values()), 0.38, color=OURS,
             label="bus")  # fmt: skip
    axes.bar(
        [place + 0.2 for place, label in enumerate(labels) if label in theirs],
        [theirs[label] for label in labels if label in theirs],
        0.38,
        color=THEIRS,
        label="visibility timeout",
    )
    axes.axhline(450, color="k", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(labels)), [f"by {label}" for label in labels])
    axes.set_ylabel("bytes of log per message")
    axes.legend(frameon=False, fontsize=8)


def _harness(axes: Axes, raw: dict[str, Any]) -> None:
    """Draw the rates of all arms, a bar for each number of jobs in flight."""
    cells = {cell: raw["clean"].get(cell, {}) for cell in ("16/1ms", "64/1ms", "256/1ms")}
    arms = [arm for arm in raw["shapes"] if any(arm in found for found in cells.values())]
    for place, (cell, found) in enumerate(cells.items()):
        axes.barh(
            [row + (place - 1) * 0.27 for row in range(len(arms))],
            [found[arm]["rate"] if arm in found else 0 for arm in arms],
            0.25,
            color=[OURS if arm in _ARMS else THEIRS for arm in arms],
            alpha=(0.45, 0.7, 1.0)[place],
            label=f"{cell.partition('/')[0]} in flight",
        )
    axes.set_yticks(range(len(arms)), arms)
    axes.invert_yaxis()
    axes.set_xlabel("jobs a second, 1 ms of work; from top to bottom 16, 64 and 256 in flight")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
