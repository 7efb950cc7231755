"""One large file from SFTP into S3, beside rclone between the same two servers."""

from __future__ import annotations

from benchmarks.intake_lab import IntakeLab, open_intake_lab, write_random
from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_least, at_most
from benchmarks.rounds import interleave, median, ratio

GIB = 1024**3
ROUNDS = 3
OURS = "intake"
PEER = "rclone copyto"


def run(lab: Lab) -> Findings:
    """Measure megabytes per second, in turns; then the memory at four times the size."""
    size = lab.scaled(GIB, 64 * 1024 * 1024)
    peaks: dict[str, float] = {}
    with open_intake_lab(lab) as servers:
        (servers.files / "one").mkdir()
        write_random(servers.files / "one" / "large.bin", size)
        source = str(servers.files / "one" / "large.bin")

        def ours() -> float:
            found = servers.ours("one")
            peaks["one"] = max(peaks.get("one", 0), found["peak_bytes"])
            return size / found["seconds"] / 1e6

        def peer() -> float:
            return size / servers.peer("copyto", f"source:{source}") / 1e6

        rates = interleave(lab, ROUNDS, {PEER: peer, OURS: ours})
        (servers.files / "one" / "large.bin").unlink()
        peaks["four"] = _at_four_times(servers, 4 * size)
        lab.report("four times the size")
    shown = f"{median(rates, OURS):.0f} MB/s"
    return Findings(
        [
            Figure(
                f"SFTP to S3, one file of {size / GIB:.2g} GiB",
                shown,
                f"{PEER} {median(rates, PEER):.0f} MB/s",
                ratio(rates, OURS, PEER),
                "x",
                at_least(1.2),
            ),
            *(
                Figure(
                    f"peak memory at {times * size / GIB:.2g} GiB",
                    f"{peaks[name] / 1e6:.0f} MB",
                    judged=peaks[name] / 1e6,
                    unit="MB",
                    bar=at_most(150),
                )
                for name, times in (("one", 1), ("four", 4))
            ),
        ],
        {"rates": rates, "peaks": peaks},
    )


def _at_four_times(servers: IntakeLab, size: int) -> float:
    (servers.files / "four").mkdir()
    path = servers.files / "four" / "large.bin"
    write_random(path, size)
    peak: float = servers.ours("four")["peak_bytes"]
    path.unlink()
    return peak


SCENARIO = Scenario(
    "intake_large",
    "A large file from SFTP into S3",
    "OpenSSH's sshd and `rclone serve s3` on loopback, both in memory; 3 rounds, alternating, "
    "with one file of 1 GiB. Postroad lists the folder, claims the file, streams it while it "
    "computes the sha256 of each part and of the file, records each part durably in "
    "PostgreSQL, completes the upload, checks it, and posts the notice; rclone copies "
    "with its defaults. Memory is the peak of Postroad's process, again at 4 GiB.",
    ROUNDS * 2 + 1,
    run,
)
