"""`python -m proof.interleavings [--full] [--seed N] [SCENARIO …]`: explore and write the page."""

from __future__ import annotations

import argparse
import sys

from proof.__main__ import main
from proof.interleavings import SCENARIOS


def command(words: list[str]) -> int:
    """Run the part interleavings of the proof."""
    parser = argparse.ArgumentParser(prog="python -m proof.interleavings", description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--postgres", help="folder of the programs of another version")
    parser.add_argument("--output", help="folder of the page")
    parser.add_argument("scenarios", nargs="*", choices=[*(s.name for s in SCENARIOS), []])
    given = parser.parse_args(words)
    more = [f"--postgres={given.postgres}"] if given.postgres else []
    return main(
        [
            "--only=interleavings",
            f"--seed={given.seed}",
            *(["--full"] if given.full else []),
            *([f"--output={given.output}"] if given.output else []),
            "--",
            *more,
            *given.scenarios,
        ]
    )


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
