"""Bytes of write-ahead log and server time per message, from post to gone."""

from __future__ import annotations

import time

from benchmarks.lab import Lab
from benchmarks.result import Figure, Findings, Scenario, at_most
from benchmarks.shapes import PAYLOAD, VISIBILITY_TABLE, claim

BATCHES = {1: 5_000, 50: 50_000, 1000: 200_000}


def run(lab: Lab) -> Findings:
    """Post and take in turns by 1, 50 and 1,000, in a transaction and by lease; bars are for 50."""
    lab.execute(VISIBILITY_TABLE)
    measured: dict[str, dict[str, float]] = {"bus": {}, "lease": {}, "visibility timeout": {}}
    times: dict[str, dict[str, float]] = {"bus": {}, "lease": {}}
    for batch, messages in BATCHES.items():
        amount = lab.scaled(messages / batch, 5)
        lab.report(f"bus by {batch}")
        before = lab.server_milliseconds()
        measured["bus"][str(batch)] = _bus(lab, batch, amount, is_filled_first=False)
        between = lab.server_milliseconds()
        lab.report(f"bus by {batch}, leased")
        measured["lease"][str(batch)] = _bus(lab, batch, amount, is_leased=True)
        after = lab.server_milliseconds()
        times["bus"][str(batch)] = (between - before) / (batch * amount) * 1000
        times["lease"][str(batch)] = (after - between) / (batch * amount) * 1000
        lab.report(f"visibility timeout by {batch}")
        measured["visibility timeout"][str(batch)] = _visibility(lab, batch, amount)
    lab.report("bus by 50, posted first")
    amount = lab.scaled(BATCHES[50] / 50, 5)
    measured["bus"]["50, all posted first"] = _bus(lab, 50, amount, is_filled_first=True)

    beside = measured["visibility timeout"]
    figures = [
        Figure(
            f"WAL per message, whole life, by {batch}",
            f"{bytes_each:.0f} B",
            f"visibility timeout {beside[batch]:.0f} B" if batch in beside else "",
            bytes_each,
            " B",
            at_most(450) if batch == "50" else None,
        )
        for batch, bytes_each in measured["bus"].items()
    ]
    figures += [
        Figure(
            f"WAL per leased message, whole life, by {batch}",
            f"{bytes_each:.0f} B",
            f"in a transaction {measured['bus'][batch]:.0f} B",
            bytes_each,
            " B",
            at_most(700) if batch == "50" else None,
        )
        for batch, bytes_each in measured["lease"].items()
    ]
    figures += [
        Figure(
            f"server time per 1,000 leased messages, by {batch}",
            f"{milliseconds:.1f} ms",
            f"in a transaction {times['bus'][batch]:.1f} ms",
            milliseconds,
            " ms",
            at_most(20) if batch == "50" else None,
        )
        for batch, milliseconds in times["lease"].items()
    ]
    return Findings(figures, {"bytes": measured, "milliseconds": times})


def _bus(
    lab: Lab, batch: int, amount: int, *, is_filled_first: bool = False, is_leased: bool = False
) -> float:
    queue = lab.new_queue()
    post = (
        f"select mbus.post_{queue}('{PAYLOAD}');"
        if batch == 1
        else f"select mbus.postn_{queue}(array_fill('{PAYLOAD}'::text, array[{batch}]));"
    )
    take = f"select count(*) from mbus.consumen_{queue}_by_default({batch});"
    if is_leased:
        take = (
            "select array_agg(iid) as iids, array_agg(token) as tokens, count(data)"
            f" from mbus.lease_{queue}_by_default({batch}) \\gset\n"
            "select mbus.ackn(:iids::text[], :tokens::bigint[]);"
        )
    scripts = [post, take] if is_filled_first else [f"{post}\n{take}"]
    lab.checkpoint()
    before = lab.number("select pg_current_wal_insert_lsn() - '0/0'")
    for script in scripts:
        lab.pgbench.times(script, clients=1, each=amount)
    _wait_for_maintenance(lab)
    after = lab.number("select pg_current_wal_insert_lsn() - '0/0'")
    left = lab.number(f"select count(*) from mbus.consumen_{queue}_by_default(1000000)")
    if left:
        raise RuntimeError(f"{left:.0f} messages were left")
    lab.drop_queue(queue)
    return (after - before) / (batch * amount)


def _visibility(lab: Lab, batch: int, amount: int) -> float:
    lab.execute("truncate visibility")
    lab.checkpoint()
    before = lab.number("select pg_current_wal_insert_lsn() - '0/0'")
    script = (
        "insert into visibility (data)"
        f" select * from unnest(array_fill('{PAYLOAD}'::text, array[{batch}]));\n"
        f"{claim(batch)} select array_agg(c.id) as ids from claimed c \\gset\n"
        "delete from visibility where id = any(:ids::bigint[]);"
    )
    lab.pgbench.times(script, clients=1, each=amount)
    # Cleaning up belongs to the whole life here too.
    lab.execute("vacuum visibility")
    after = lab.number("select pg_current_wal_insert_lsn() - '0/0'")
    return (after - before) / (batch * amount)


def _wait_for_maintenance(lab: Lab) -> None:
    """Let maintenance finish what the load left: reclaiming belongs to a message's whole life."""
    calls = lab.maintainer.tally.calls
    while lab.maintainer.tally.calls < calls + 2 or lab.maintainer.tally.is_busy:
        lab.maintainer.check()
        time.sleep(0.05)


SCENARIO = Scenario(
    "wal",
    "Write-ahead log per message",
    "pgbench, one client that posts a batch and takes it, or leases and acks it, each in a "
    "separate commit; the processor time of its sessions; the log's position before and after, "
    "from a checkpoint until maintenance has nothing left to do (vacuum for the visibility "
    "timeout). 5,000, 50,000 and 200,000 messages.",
    7,
    run,
)
