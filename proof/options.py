"""What every part receives: how much to do, from which seed, and where its files go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ROOT", "SCRATCH", "Options"]

ROOT = Path(__file__).parents[1]
# Logs, histories and data folders of runs; not tracked.
SCRATCH = ROOT / ".cache" / "proof"


@dataclass(frozen=True)
class Options:
    """One run. The same seed and size give the same choices again."""

    seed: int = 1
    is_full: bool = False
    # Bound of the time under load, where a part has one; None: the part's own.
    seconds: float | None = None
    scratch: Path = field(default=SCRATCH)
    # Words after `--`, for the part alone: `make proof ONLY=crashes ARGS="-- migrator"`.
    arguments: tuple[str, ...] = ()
