"""Job queues under the contract of a public harness: Postroad's modes beside the peers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.harness.arms import OURS, PEERS, Arm, arm_named
from benchmarks.harness.cells import CLEAN, Cell
from benchmarks.harness.driver import AdapterFailed, Measured, Place, measure, open_place
from benchmarks.harness.phases import FAULTS, RATE, run_faults, run_pressure
from benchmarks.lab import Lab
from benchmarks.peers.install import NotInstalled
from benchmarks.result import Bar, Figure, Findings, Scenario, at_least, at_most

ARMS = (*OURS, *PEERS)
# Acknowledges batches as a whole: another contract than a job queue's.
BATCH_CONTRACT = ("pgque",)
MANY_WORKERS = "lease*16"
IN_FLIGHT = 64
STEADY = f"{IN_FLIGHT}/1ms"
CLEAN_SECONDS, WARM_SECONDS = 4, 2
PRESSURE_SECONDS = 4
FAULT_SECONDS = 12
# Faults are judged by what is lost and by seconds of recovery, so several arms share the machine.
FAULTS_AT_ONCE = 3
# Two versions of each message in two segments of the ring, of 8 MB each.
DEAD_ROWS_MAX = 50_000

# Measured for Postroad alone.
OWN_CELLS = (Cell(16, 0), Cell(256, 1000))

Cells = dict[str, dict[str, Measured]]


def run(lab: Lab) -> Findings:
    """Measure every cell and phase of every arm; what fails is reported and left out."""
    arms, absent = _arms(lab)
    troubles: list[str] = []
    with open_place() as place:
        cells = _clean(lab, place, arms, troubles)
        loads = {arm.name: Cell(IN_FLIGHT, 1, _steady_rate(cells, arm.name)) for arm in arms}
        pressures: dict[str, Any] = {}
        for arm in arms:
            lab.report(f"{arm.name}, pressure")
            try:
                seconds = lab.scaled(PRESSURE_SECONDS)
                pressures[arm.name] = run_pressure(place, arm, loads[arm.name], seconds)
            except AdapterFailed as error:
                troubles.append(f"{arm.name}, pressure: {error}")
    lab.report("faults")
    faults = _faults(lab, arms, loads, troubles)
    raw = {
        "clean": {
            name: {arm: each.facts() for arm, each in found.items()}
            for name, found in cells.items()
        },
        "pressure": pressures,
        "faults": faults,
        "rates_offered": {name: load.rate for name, load in loads.items()},
        "shapes": {arm.name: arm.shape for arm in arms},
        "absent": absent,
        "troubles": troubles,
    }
    raw["tables"] = _tables(raw)
    return Findings(_figures(cells, pressures, faults), raw)


def _arms(lab: Lab) -> tuple[list[Arm], dict[str, str]]:
    lab.report("installing the peers")
    arms, absent = [], {}
    for name in ARMS:
        try:
            arms.append(arm_named(name, lab.root))
        except NotInstalled as error:
            absent[name] = str(error)
    return arms, absent


def _clean(lab: Lab, place: Place, arms: list[Arm], troubles: list[str]) -> Cells:
    """Measure the cells, all arms of a cell one after the other."""
    found: Cells = {}
    plan = [(cell, arm) for cell in CLEAN for arm in arms if arm.is_ours or cell not in OWN_CELLS]
    plan.append((Cell(IN_FLIGHT, 1), arm_named(MANY_WORKERS)))
    for cell, arm in plan:
        lab.report(f"{arm.name}, {cell.name}")
        warm, seconds = lab.scaled(WARM_SECONDS), lab.scaled(CLEAN_SECONDS)
        if arm.name == MANY_WORKERS:
            # The reports of 16 workers that start or stop together take some MultiXacts, too.
            seconds *= 3
        try:
            measured = measure(place, arm, cell, warm, seconds)
        except AdapterFailed as error:
            troubles.append(f"{arm.name}, {cell.name}: {error}")
        else:
            found.setdefault(cell.name, {})[arm.name] = measured
    return found


def _faults(
    lab: Lab, arms: list[Arm], loads: dict[str, Cell], troubles: list[str]
) -> dict[str, Any]:
    """Run the faults of all arms, several at a time, each on a server of its own."""

    def inflict(arm: Arm) -> dict[str, Any] | None:
        try:
            with open_place() as place:
                return run_faults(place, arm, loads[arm.name], lab.scaled(FAULT_SECONDS, 4))
        except AdapterFailed as error:
            troubles.append(f"{arm.name}, faults: {error}")
            return None

    with ThreadPoolExecutor(FAULTS_AT_ONCE) as pool:
        found = zip(arms, pool.map(inflict, arms), strict=True)
        return {arm.name: each for arm, each in found if each is not None}


def _steady_rate(cells: Cells, name: str) -> int:
    """Offer the phases no more than half of what an arm handles at most."""
    measured = cells.get(STEADY, {}).get(name)
    return max(50, min(RATE, round(measured.rate / 2))) if measured else RATE


def _figures(cells: Cells, pressures: dict[str, Any], faults: dict[str, Any]) -> list[Figure]:
    figures: list[Figure] = []

    def add(what: str, ours: str, beside: str, judged: float, unit: str, bar: Bar | None) -> None:
        figures.append(Figure(f"harness: {what}", ours, beside, judged, unit, bar))

    def got(cell: str, name: str) -> Measured | None:
        """Return what was measured; None for an arm that failed there, which is reported."""
        return cells.get(cell, {}).get(name)

    for name, most in (("lease", 20.0), ("transactional", 15.0), ("batch", 8.0), ("cursor", 8.0)):
        if found := got(STEADY, name):
            cost = found.server_ms_per_1000
            best, peer = _best(cells[STEADY], lambda each: -each.server_ms_per_1000)
            what = f"{name}, server time per 1,000 jobs, {IN_FLIGHT} in flight, 1 ms of work"
            beside = f"{best} {peer.server_ms_per_1000:.1f} ms" if peer else ""
            add(what, f"{cost:.1f} ms", beside, cost, " ms", at_most(most))
    if found := got(STEADY, "lease"):
        log, dead = found.wal_bytes_per_job, found.dead_rows
        add("log per leased job", f"{log:,.0f} bytes", "", log, " bytes", at_most(700))
        add(f"dead rows after {found.jobs:,} leased jobs and more", f"{dead:,}", "", dead, " rows",
            at_most(DEAD_ROWS_MAX))  # fmt: skip
    if found := got(STEADY, MANY_WORKERS):
        many = found.multixacts_per_10000
        add("MultiXacts per 10,000 leased jobs, 16 workers", f"{many:.1f}", "", many, " MultiXacts",
            at_most(10))  # fmt: skip
    few, full = got("16/1ms", "transactional"), got("256/1ms", "transactional")
    if few and full:
        add("transactional, 256 in flight beside 16", f"{full.rate:,.0f}/s", f"{few.rate:,.0f}/s",
            full.rate / few.rate, "x", at_least(0.8))  # fmt: skip
    for in_flight, least in ((16, 1.0), (64, 1.5), (256, 1.5)):
        best, peer = _best(cells.get(f"{in_flight}/1ms", {}), lambda each: each.rate)
        found = got(f"{in_flight}/1ms", "lease")
        if found and peer:
            what = f"lease beside the best job queue, {in_flight} in flight, 1 ms of work"
            add(what, f"{found.rate:,.0f}/s", f"{best} {peer.rate:,.0f}/s", found.rate / peer.rate,
                "x", at_least(least))  # fmt: skip
    best, peer = _best(cells.get(f"{STEADY}/{RATE}", {}), lambda each: -each.p99_ms)
    found = got(f"{STEADY}/{RATE}", "lease")
    if found and peer:
        add(f"lease, pick-up p99 at {RATE}/s", f"{found.p99_ms:.1f} ms",
            f"{best} {peer.p99_ms:.1f} ms", found.p99_ms / peer.p99_ms, "x",
            at_most(1))  # fmt: skip
    for name in OURS:
        if name in pressures:
            clean, held = pressures[name]["clean"], pressures[name]["held snapshot"]
            for label, column, most in (
                ("pick-up p99", "p99_ms", 2.0),
                ("server time per 1,000", "server_ms_per_1000", 1.3),
            ):
                add(f"{name}, {label} under a held snapshot", f"{held[column]:.1f} ms",
                    f"before {clean[column]:.1f} ms", held[column] / max(clean[column], 0.001), "x",
                    at_most(most))  # fmt: skip
        if name in faults:
            lost, doubled = faults[name]["lost"], faults[name]["doubled"]
            add(f"{name}, jobs lost by three faults", f"{lost:,}", f"of {faults[name]['posted']:,}",
                float(lost == 0), "", at_least(1))  # fmt: skip
            bar = None if name == "lease" else at_least(1)
            add(f"{name}, jobs done twice", f"{doubled:,}", "", float(doubled == 0), "", bar)
    return figures


def _best(found: dict[str, Measured], key: Any) -> tuple[str, Measured | None]:
    """Return the best peer with a job queue's contract."""
    peers = {
        name: each for name, each in found.items() if name in PEERS and name not in BATCH_CONTRACT
    }
    name = max(peers, key=lambda each: key(peers[each]), default="")
    return name, peers.get(name)


def _tables(raw: dict[str, Any]) -> list[dict[str, Any]]:
    tables = []
    for cell, found in raw["clean"].items():
        rows = [
            [
                name,
                f"{each['rate']:,.0f}",
                f"{each['p50_ms']:,.1f} / {each['p95_ms']:,.1f} / {each['p99_ms']:,.1f}",
                f"{each['server_ms_per_1000']:.1f}",
                f"{each['client_ms_per_1000']:.1f}",
                f"{each['wal_bytes_per_job']:,.0f}",
                f"{each['dead_rows']:,}",
                f"{each['multixacts_per_10000']:.1f}",
                str(each["sessions"]),
            ]
            for name, each in found.items()
        ]
        header = ["arm", "jobs/s", "pick-up p50 / p95 / p99 ms", "server ms per 1,000",
                  "client ms per 1,000", "log bytes per job", "dead rows", "MultiXacts per 10,000",
                  "sessions"]  # fmt: skip
        tables.append({"title": f"In flight / work / offered: {cell}", "header": header,
                       "rows": rows})  # fmt: skip
    rows = [
        [
            name,
            phase,
            f"{each['rate']:,.0f}",
            f"{each['p50_ms']:,.1f} / {each['p95_ms']:,.1f} / {each['p99_ms']:,.1f}",
            f"{each['server_ms_per_1000']:.1f}",
            f"{each['wal_bytes_per_job']:,.0f}",
            f"{each['dead_rows']:,}",
            _seconds(each.get("drain_seconds")) if phase == "burst" else "",
        ]
        for name, phases in raw["pressure"].items()
        for phase, each in phases.items()
    ]
    header = ["arm", "phase", "jobs/s", "pick-up p50 / p95 / p99 ms", "server ms per 1,000",
              "log bytes per job", "dead rows", "drained after"]  # fmt: skip
    tables.append({"title": "Pressure", "header": header, "rows": rows})
    rows = [
        [
            name,
            f"{each['lost']:,} of {each['posted']:,}",
            f"{each['doubled']:,}",
            str(each["restarts"]),
            *(
                f"{_seconds(fault['outage_seconds'])} / {_seconds(fault['rate_back_seconds'])} / "
                f"{_seconds(fault['last_back_seconds'])}"
                for fault in each["faults"].values()
            ),
        ]
        for name, each in raw["faults"].items()
    ]
    header = ["arm", "lost", "doubled", "restarts", *(f"{fault}: outage / rate back / last job back"
              for fault in FAULTS)]  # fmt: skip
    tables.append({"title": "Faults", "header": header, "rows": rows})
    rows = [[name, shape] for name, shape in raw["shapes"].items()]
    rows += [[name, f"absent: {reason}"] for name, reason in raw["absent"].items()]
    tables.append({"title": "Arms", "header": ["arm", "set up as"], "rows": rows})
    if raw["troubles"]:
        rows = [[each.replace("|", "/").replace("\n", " ")[:300]] for each in raw["troubles"]]
        tables.append({"title": "Not measured", "header": ["what and why"], "rows": rows})
    return tables


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


SCENARIO = Scenario(
    "harness",
    "Job queues under a public harness's contract",
    "Adapters after the contract of hardbyte/postgresql-job-queue-benchmarking, each a process of "
    "its own with producer and workers, on a PostgreSQL of its own with 500 connections, each cell "
    "on a fresh database: 256 bytes of payload, handlers that sleep, 2 s of load before 4 s of "
    "measurement. Without an offered rate the producer keeps 4,000 jobs waiting or 16 per handler. "
    "Server time is that of all its processes, ended ones included; log is the WAL; dead rows are "
    "counted after the adapter has stopped, MultiXacts over the whole life of the adapter, with 16 "
    "workers 12 s of measurement. "
    "Pressure: 64 in flight, 1 ms of work, 800 jobs a second or half of what the arm can do, 4 s "
    "each: clean; a transaction with a snapshot held; 4 sessions that count the rows of all tables "
    "in snapshots of a second (their time is part of the server's); 5 times the rate, and the time "
    "until nothing waits. Faults, with the same load, producer and worker apart, leases of 10 s, "
    "12 s between them, three arms at a time, each on a server of its own: SIGKILL of the worker, "
    "which is started again at once; "
    "pg_terminate_backend of all sessions; immediate stop and start of PostgreSQL. A process that "
    "ends by itself is started again and counted. Lost is a job whose posting was confirmed and "
    "which had not run when no job had run for 30 s after the last fault; a transactional job has "
    "run when its transaction has committed. The rate is back when jobs run at 90 % of what is "
    "offered. Arms with a batch "
    f"contract ({', '.join(BATCH_CONTRACT)}) acknowledge many jobs at once and are not ranked with "
    "job queues.",
    3 + len(PEERS) * (len(CLEAN) - len(OWN_CELLS) + 1) + len(OURS) * (len(CLEAN) + 1),
    run,
)
