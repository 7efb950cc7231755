"""Many small files from SFTP into S3, beside rclone with the same number of transfers."""

from __future__ import annotations

import secrets

from benchmarks.intake_lab import open_intake_lab
from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least
from benchmarks.rounds import interleave, median, ratio

FILES = 10_000
BYTES = 10 * 1024
TRANSFERS = 4
ROUNDS = 3
# Its default asks the source's shell for a checksum of each file, at 20 files a second here.
CHECKED_SHARE = 50
OURS = "intake"
PEER = "rclone copy, unchecked"
CHECKED = "rclone copy"


def run(lab: Lab) -> Findings:
    """Measure files per second, in turns."""
    count = lab.scaled(FILES, 200)
    few = max(20, count // CHECKED_SHARE)
    with open_intake_lab(lab) as servers:
        for folder, amount in (("many", count), ("few", few)):
            (servers.files / folder).mkdir()
            for number in range(amount):
                path = servers.files / folder / f"{number:05}.dat"
                path.write_bytes(secrets.token_bytes(BYTES))
        transfers = ("--transfers", str(TRANSFERS))

        def ours() -> float:
            found = servers.ours("many", pipeline=TRANSFERS, uploads=TRANSFERS)
            if found["files"] != count:
                raise RuntimeError(f"{found['files']} of {count} files arrived")
            return count / found["seconds"]

        def peer() -> float:
            source = f"source:{servers.files / 'many'}"
            return count / servers.peer("copy", *transfers, source, is_checked=False)

        def checked() -> float:
            return few / servers.peer("copy", *transfers, f"source:{servers.files / 'few'}")

        rates = interleave(lab, ROUNDS, {PEER: peer, OURS: ours, CHECKED: checked})
    shown = f"{median(rates, OURS):.0f}/s"
    return Findings(
        [
            Figure(
                f"SFTP to S3, {count:,} files of 10 KiB, {TRANSFERS} at once",
                shown,
                f"{PEER} {median(rates, PEER):.0f}/s",
                ratio(rates, OURS, PEER),
                "x",
                at_least(1.0),
            ),
            Figure(
                "the same",
                shown,
                f"{CHECKED}, defaults {median(rates, CHECKED):.0f}/s",
                ratio(rates, OURS, CHECKED),
                "x",
                at_least(1.0),
            ),
        ],
        {"rates": rates},
    )


SCENARIO = Scenario(
    "intake_small",
    "Many small files from SFTP into S3",
    "The same servers; 10,000 files of 10 KiB, 4 in flight on both sides, 3 rounds, alternating. "
    "Postroad records each file durably, hashes it, checks its size and time again after the last "
    "byte, and posts a notice. rclone runs twice: without its checksums, and with its defaults, "
    "which compute the checksum of each file in a shell at the source (with a fiftieth of the "
    "files, because this is slow).",
    ROUNDS * 3,
    run,
)
