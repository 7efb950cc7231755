"""The report in Markdown, made from results.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["summary", "write_report"]

# With more CPU use by other processes, a figure describes the machine rather than the bus.
MAX_BUSY_PERCENT = 20

_INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. The command starts a separate PostgreSQL in a temporary
folder, installs the bus, and runs all measurements below. `make bench ONLY=take` repeats one
scenario; `make bench SCALE=0.1` is a short run that does not change these files.

A comparison consists of short rounds in which the two sides alternate, so that other load on the
machine affects both in the same way. The tables show the median rates, and the median of the
ratios of the rounds. Payloads have 200 bytes. `mbus.maintain()` runs during every measurement in a
separate session: again after 50 ms if the last call raised a hint or reclaimed a slot, otherwise
after 500 ms. A checkpoint precedes each measurement. Rates of the server are measured by pgbench
with prepared statements. The raw numbers of all rounds are in [results.json](results.json).
"""


def write_report(folder: Path, results: dict[str, Any]) -> None:
    """Write README.md beside results.json."""
    parts = [_INTRODUCTION, _warning(results), _machine(results), _table(results)]
    parts.append(_methods(results, folder))
    text = "\n".join(filter(None, parts)).rstrip() + "\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def summary(results: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """List every figure: subject, rate, the rate it is compared with, result, verdict."""
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
    """List the scenarios with other load on the machine, and those not measured yet."""
    scenarios = results["scenarios"]
    disturbed = [
        f"`{name}` ({each['busy_percent']} %)"
        for name, each in scenarios.items()
        if each["busy_percent"] > MAX_BUSY_PERCENT
    ]
    missing = [f"`{name}`" for name in results["missing"]]
    text = ""
    if disturbed:
        text += (
            f"**Other load**: the machine was busy before {', '.join(disturbed)}: rates are too "
            "low, and ratios less certain than on an idle machine.\n"
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
        "| measurement | Postroad | compared with | result | bar | met |",
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
            f"the machine was {scenario['busy_percent']} % busy with other work before it.\n"
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
