"""The report in Markdown, made from results.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["summary", "write_report"]

# More other work than this, and a figure says more about the machine than about the bus.
BUSY_PERCENT_MOST = 20

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. One command starts a PostgreSQL of its own in a temporary
folder, installs the bus, and measures everything below. `make bench ONLY=take` measures one
scenario again, `make bench SCALE=0.1` is a quick look that leaves these files alone.

A comparison is made of short rounds in which the arms alternate, so that whatever disturbs the
machine disturbs both alike; given are the medians of the rates and the median of the rounds'
ratios. Payloads are 200 bytes. `mbus.maintain()` runs beside every load in a session of its own:
again after 50 ms when the last call settled or reclaimed something, else after 500 ms. A
checkpoint comes before each measured piece. Server-side rates are by pgbench with prepared
statements. Raw numbers of all rounds: [results.json](results.json).
"""


def write_report(folder: Path, results: dict[str, Any]) -> None:
    """Write README.md beside results.json."""
    parts = [_INTRODUCTION, _warning(results), _machine(results), _table(results)]
    parts.append(_methods(results, folder))
    text = "\n".join(filter(None, parts)).rstrip() + "\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def summary(results: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """List every figure: what, measured, beside, judged, verdict."""
    return [
        (
            figure["what"],
            figure["ours"],
            figure["beside"],
            _judged(figure),
            _verdict(figure),
        )
        for scenario in results["scenarios"].values()
        for figure in scenario["figures"]
    ]


def _warning(results: dict[str, Any]) -> str:
    """Say plainly which scenarios were disturbed, and which have not been measured at all."""
    scenarios = results["scenarios"]
    disturbed = [
        f"`{name}` ({each['busy_percent']} %)"
        for name, each in scenarios.items()
        if each["busy_percent"] > BUSY_PERCENT_MOST
    ]
    missing = [f"`{name}`" for name in results["missing"]]
    text = ""
    if disturbed:
        text += (
            "**Disturbed**: other work kept the machine busy just before "
            f"{', '.join(disturbed)}: rates are too low, and "
            "ratios less certain than on a quiet machine.\n"
        )
    if missing:
        text += f"**Not measured yet**: {', '.join(missing)}.\n"
    return text


def _machine(results: dict[str, Any]) -> str:
    machine, configuration = results["machine"], results["configuration"]
    facts = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}; "
        f"{machine['system']}; PostgreSQL {machine['postgresql']}; Python {machine['python']}"
    )
    options = ", ".join(f"`{name} = {value}`" for name, value in configuration.items())
    return f"**Machine**: {facts}.\n\n**Server**: {options}.\n"


def _table(results: dict[str, Any]) -> str:
    lines = [
        "| what | measured | beside | result | bar | met |",
        "|---|---|---|---|---|---|",
    ]
    for scenario in results["scenarios"].values():
        for figure in scenario["figures"]:
            cells = (
                figure["what"],
                figure["ours"],
                figure["beside"] or "-",
                _judged(figure),
                _bar(figure),
                _verdict(figure),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "## Results\n\n" + "\n".join(lines) + "\n"


def _methods(results: dict[str, Any], folder: Path) -> str:
    parts = ["## Scenarios\n"]
    for name, scenario in results["scenarios"].items():
        parts.append(f"### {scenario['title']}\n")
        parts.append(f"{scenario['method']}\n")
        scale = "" if scenario["scale"] == 1 else f", at scale {scenario['scale']}"
        parts.append(
            f"`{name}`, measured on {scenario['date']} at commit `{scenario['commit']}` "
            f"in {scenario['seconds']:.0f} s{scale}, with {_maintenance(scenario)}; "
            f"just before, other work kept the machine {scenario['busy_percent']} % busy.\n"
        )
        if (folder / f"{name}.svg").is_file():
            parts.append(f"![{scenario['title']}]({name}.svg)\n")
        parts += [_own_table(table) for table in scenario["raw"].get("tables", ())]
    return "\n".join(parts)


def _own_table(table: dict[str, Any]) -> str:
    lines = [table["header"], ["---"] * len(table["header"]), *table["rows"]]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"#### {table['title']}\n\n{text}\n"


def _maintenance(scenario: dict[str, Any]) -> str:
    tally = scenario["maintenance"]
    text = f"{tally['calls']:,} calls of maintenance"
    failures = tally["failures"]
    return text + (f", {len(failures)} failed (first: {failures[0]})" if failures else "")


def _judged(figure: dict[str, Any]) -> str:
    value, unit = figure["judged"], figure["unit"]
    if value is None:
        return "-"
    if not unit:
        return "yes" if value else "no"
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.2f}{unit}"


def _bar(figure: dict[str, Any]) -> str:
    if figure["bar"] is None:
        return "-"
    sense, limit = figure["bar"]
    if not figure["unit"]:
        return "yes"
    return f"{'at least' if sense == '>=' else 'at most'} {limit:,g}{figure['unit']}"


def _verdict(figure: dict[str, Any]) -> str:
    return {True: "met", False: "**missed**", None: "-"}[figure["is_met"]]
