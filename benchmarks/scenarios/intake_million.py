"""One million files in one folder of an SFTP server: time and memory of its scans."""

from __future__ import annotations

import os

from benchmarks.intake_lab import IntakeLab, open_intake_lab
from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_most

FILES = 1_000_000
# By the identical scans that are required before a file is imported: the scans that are measured.
SCANS = {1: 2, 2: 3}
MAX_SHARE = 0.2
MAX_BYTES = 200_000_000


def run(lab: Lab) -> Findings:
    """Scan the folder repeatedly, once with each number of required scans."""
    count = lab.scaled(FILES, 5000)
    with open_intake_lab(lab) as servers:
        folder = servers.files / "million"
        folder.mkdir()
        for number in range(count):
            os.close(os.open(folder / f"{number:07}.csv", os.O_CREAT | os.O_WRONLY, 0o644))
        found = {checks: _scans(servers, count, checks, scans) for checks, scans in SCANS.items()}
        lab.report("scanned")
    once, twice = (found[checks]["scans"] for checks in SCANS)
    listing = found[1]["listing"]
    peak = max(one["peak_bytes"] for one in found.values())
    shown = f"{count:,} empty files in one folder"
    return Findings(
        [
            Figure(
                f"{shown}: a scan that changes nothing",
                f"{once[1]['seconds']:.1f} s",
                f"the first scan, which records all, {once[0]['seconds']:.1f} s",
                once[1]["seconds"] / once[0]["seconds"],
                "x",
                at_most(MAX_SHARE),
            ),
            Figure(
                "peak memory of the scanning process",
                f"{peak / 1e6:.0f} MB",
                "",
                peak / 1e6,
                "MB",
                at_most(MAX_BYTES / 1e6),
            ),
            Figure(
                "listing alone, nothing recorded",
                f"{listing:.1f} s",
                "the scan that changes nothing",
                listing / once[1]["seconds"],
                "x",
            ),
            Figure(
                "`stable_checks` 2: the third scan, which changes nothing",
                f"{twice[2]['seconds']:.1f} s",
                f"first {twice[0]['seconds']:.1f} s, second, which finds all files complete, "
                f"{twice[1]['seconds']:.1f} s",
                twice[2]["seconds"] / twice[0]["seconds"],
                "x",
                at_most(MAX_SHARE),
            ),
        ],
        {"found": {str(checks): one for checks, one in found.items()}},
    )


def _scans(servers: IntakeLab, count: int, checks: int, scans: int) -> dict[str, object]:
    found = servers.scans("million", scans, checks)
    discovered = [one["discovered"] for one in found["scans"]]
    wanted = [count if number == checks - 1 else 0 for number in range(scans)]
    if discovered != wanted:
        raise RuntimeError(f"the scans discovered {discovered} files")
    return found


SCENARIO = Scenario(
    "intake_million",
    "One million files in one folder",
    "OpenSSH's sshd on loopback, its folder in memory; one process scans a folder of 1,000,000 "
    "empty files, twice with `stable_checks` 1 and three times with the default 2. Nothing is "
    "imported: the figures are those of discovery, whose result is the journal's rows.",
    1,
    run,
)
