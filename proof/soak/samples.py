"""What a process and a database hold, and whether it grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import psycopg

__all__ = ["LIMITS", "Metric", "Samples", "database", "disk_megabytes", "process", "slope"]


@dataclass(frozen=True)
class Metric:
    """A measure, and the growth per hour that counts as flat.

    `share` is relative to the mean; `floor` is what noise may add, in the metric's unit.
    """

    unit: str
    share: float
    floor: float


LIMITS = {
    "memory": Metric("MB", 0.10, 10.0),
    "descriptors": Metric("", 0.05, 5.0),
    "connections": Metric("", 0.10, 5.0),
    "temporary relations of the bus": Metric("", 0.10, 5.0),
    "relations of the bus": Metric("MB", 0.10, 5.0),
    "catalogue": Metric("MB", 0.10, 5.0),
    "log": Metric("MB", float("inf"), 5.0),
}


@dataclass
class Samples:
    """Series of (seconds, value) by metric and subject."""

    series: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, at: float, metric: str, subject: str, value: float) -> None:
        """Add one value."""
        self.series[metric, subject].append((at, value))

    def after(self, warm_up: float) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """Return what was measured after the warm-up, of series with enough of it."""
        found = {
            key: [(at, value) for at, value in values if at >= warm_up]
            for key, values in self.series.items()
        }
        return {key: values for key, values in found.items() if len(values) >= 5}

    def judge(self, warm_up: float) -> list[str]:
        """Name each series that grows by more than its metric's limit."""
        violations = []
        for (metric, subject), values in self.after(warm_up).items():
            limit = LIMITS.get(metric)
            if limit is None:
                continue
            hours = (values[-1][0] - values[0][0]) / 3600
            growth = slope(values) * hours
            allowed = limit.floor
            if metric != "log":
                allowed = max(allowed, limit.share * mean(value for _, value in values))
            else:
                # A log may have lines; its volume per hour is bounded.
                allowed = limit.floor * max(hours, 0.05)
            if growth > allowed:
                violations.append(
                    f"{metric} of {subject} grew by {growth:.1f} {limit.unit} in"
                    f" {hours * 60:.0f} minutes; {allowed:.1f} is flat"
                )
        return violations


def slope(values: Iterable[tuple[float, float]]) -> float:
    """Return the growth per hour of the line that fits best."""
    points = list(values)
    middle, level = mean(at for at, _ in points), mean(value for _, value in points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    if not spread:
        return 0.0
    return 3600 * sum((at - middle) * (value - level) for at, value in points) / spread


def process(pid: int) -> dict[str, float]:
    """Return the memory that is its own and the descriptors of a process."""
    folder = Path(f"/proc/{pid}")
    text = (folder / "smaps_rollup").read_text(encoding="ascii")
    private = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))
    return {"memory": private / 1024, "descriptors": len(list((folder / "fd").iterdir()))}


def disk_megabytes(folder: Path) -> float:
    """Return the size of all files of a folder; those that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() and not path.is_symlink() else 0
        except OSError:
            continue
    return total / 1e6


_SIZES = """
select n.nspname, sum(pg_total_relation_size(c.oid)) / 1e6, count(*) filter (where c.relkind = 'r')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm', 'S') and n.nspname !~ '^pg_(toast|temp)' group by 1
"""


def database(connection: psycopg.Connection) -> dict[tuple[str, str], float]:
    """Return the connections, and the sizes of the schemas."""
    found = {}
    row = connection.execute(
        "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    ).fetchone()
    assert row is not None
    found["connections", "PostgreSQL"] = float(row[0])
    for schema, megabytes, tables in connection.execute(_SIZES).fetchall():
        if schema == "mbus":
            found["relations of the bus", "schema mbus"] = float(megabytes)
            found["temporary relations of the bus", "tables of schema mbus"] = float(tables)
        elif schema == "pg_catalog":
            found["catalogue", "pg_catalog"] = float(megabytes)
        else:
            found["journals", f"schema {schema}"] = float(megabytes)
    return found
