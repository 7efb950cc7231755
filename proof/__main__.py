"""Command line of the proof: `python -m proof`, or `make proof`."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import proof
from proof.options import Options
from proof.report import PAGES, write_index, write_page


def parts() -> dict[str, ModuleType]:
    """Find the parts: packages of this folder that have a function `run`."""
    found = {}
    for module in pkgutil.iter_modules(proof.__path__):
        if module.ispkg:
            package = importlib.import_module(f"proof.{module.name}")
            if hasattr(package, "run"):
                found[module.name] = package
    return found


def main(words: list[str] | None = None) -> int:
    """Run the chosen parts and write their pages; 1 when a promise did not hold."""
    there = parts()
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("--only", default="", help=f"comma-separated: {', '.join(there)}")
    parser.add_argument("--full", action="store_true", help="in full length")
    parser.add_argument("--seed", type=int, default=1, help="of all random choices; default 1")
    parser.add_argument("--seconds", type=float, help="time under load of parts that have one")
    parser.add_argument("--output", type=Path, default=PAGES, help="folder of the pages")
    parser.add_argument("arguments", nargs="*", help="for the part alone, after --")
    given = parser.parse_args(words)
    chosen = [name for name in given.only.split(",") if name] or list(there)
    unknown = set(chosen) - set(there)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    # A terminated run stops its servers, like an interrupted one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = Options(
        seed=given.seed,
        is_full=given.full,
        seconds=given.seconds,
        arguments=tuple(given.arguments),
    )
    failed = []
    for name in chosen:
        print(f"{name}: begins, seed {options.seed}", flush=True)
        began = time.monotonic()
        report = there[name].run(options)
        write_page(given.output, name, report, options, time.monotonic() - began)
        # After each part: an interrupted run keeps the pages that it has written.
        write_index(given.output)
        print(f"{name}: {len(report.violations)} violations; page {given.output / name}.md")
        for violation in report.violations[:20]:
            print(f"  {violation}")
        failed += [name] if report.violations else []
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; pages of finished parts are kept")
