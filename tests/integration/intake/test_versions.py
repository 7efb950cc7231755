from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from postroad.intake import discovery, operations
from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.listing import Entry, Listing
from postroad.intake.notice import notify
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from postroad.lease import Keeper
from postroad.testing import wait_until_async
from tests.integration.intake.partner import Partner, run_once, sha256, work_off

PAGES = Listing.pages


async def test_a_corrected_file_is_imported_again_and_an_unchanged_one_never(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"first")
    partner.write("same.csv", b"same")
    await run_once(engine, partner)
    path.write_bytes(b"second!")
    await run_once(engine, partner)
    rows = [row for row in partner.files if row["filename"] == "a.csv"]
    assert [(row["version"], row["status"]) for row in rows] == [(1, "completed"), (2, "completed")]
    assert [row["object_key"] for row in rows] == ["127.0.0.1/a.csv", "127.0.0.1/a.csv~2"]
    assert [row["file_hash"] for row in rows] == [sha256(b"first"), sha256(b"second!")]
    notices = partner.notices()
    assert sorted(one["minio_path"] for one in notices) == [
        "127.0.0.1/a.csv",
        "127.0.0.1/a.csv~2",
        "127.0.0.1/same.csv",
    ]


async def test_a_touched_file_gets_no_second_notice_and_no_row_per_scan(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"first")
    await run_once(engine, partner)
    for mtime in (100, 200, 300):
        os.utime(path, (mtime, mtime))
        await run_once(engine, partner)
    first, touched = partner.files
    assert (touched["same_as"], touched["version"], touched["mtime"]) == (first["id"], 1, 300)
    assert touched["object_key"] == first["object_key"]
    assert [one["file_id"] for one in partner.notices()] == [first["id"]]
    path.write_bytes(b"second")
    await run_once(engine, partner)
    assert [row["version"] for row in partner.files] == [1, 1, 2]
    assert partner.files[-1]["object_key"] == "127.0.0.1/a.csv~2"
    assert [one["version"] for one in partner.notices()] == [2]


async def test_a_touched_file_that_is_imported_again_by_hand_is_announced(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"first")
    await run_once(engine, partner)
    os.utime(path, (100, 100))
    await run_once(engine, partner)
    touched = partner.files[-1]["id"]
    partner.run(operations.reimport, [touched])
    await run_once(engine, partner)
    assert partner.notices()[-1]["file_id"] == touched
    assert partner.files[-1]["same_as"] is None


async def test_a_file_that_changes_at_each_scan_keeps_one_superseded_row(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"1")
    for mtime in range(100, 600, 100):
        os.utime(path, (mtime, mtime))
        await discover(engine, partner.server_id)
        # Changed between the scan and the transfer.
        os.utime(path, (mtime + 1, mtime + 1))
        await work_off(engine, partner)
    statuses = [row["status"] for row in partner.files]
    assert statuses.count("superseded") <= 2


async def test_a_notice_names_the_path_in_the_bucket(engine: Engine, partner: Partner) -> None:
    partner.write("a.csv", b"1")
    await discover(engine, partner.server_id)
    [ids] = await dispatch(engine, partner.server_id)
    await transfer(engine, ids)
    partner.rows("update intake.imported_files set store = 's3://in/partners/eu' returning id")
    await notify(engine, ids)
    assert [one["minio_path"] for one in partner.notices()] == ["partners/eu/127.0.0.1/a.csv"]


async def test_two_equal_looks_are_needed_by_default(engine: Engine, partner: Partner) -> None:
    partner.change(looks=2)
    path = partner.write("growing.csv", b"1")
    await run_once(engine, partner)
    path.write_bytes(b"12")
    await run_once(engine, partner)
    assert partner.files == []
    await run_once(engine, partner)
    assert partner.statuses == {"growing.csv": "completed"}
    assert partner.file("growing.csv")["file_hash"] == sha256(b"12")


async def test_a_minimum_age_counts_from_when_we_saw_it_last_change(
    engine: Engine, partner: Partner, clock_of_intake: object
) -> None:
    from datetime import timedelta

    partner.change(minimum_age=timedelta(minutes=5))
    path = partner.write("a.csv", b"1")
    # The partner's clock may be anywhere: an old mtime says nothing.
    os.utime(path, (1, 1))
    await run_once(engine, partner)
    assert partner.files == []
    clock_of_intake.advance(timedelta(minutes=6))  # type: ignore[attr-defined]
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}


async def test_a_done_file_lets_its_file_in(engine: Engine, partner: Partner) -> None:
    partner.change(done_suffix=".done", after_import="delete")
    data = partner.write("a.csv", b"1")
    partner.write("b.csv", b"2")
    await run_once(engine, partner)
    assert partner.files == []
    marker = partner.write("a.csv.done", b"")
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}
    assert not data.exists()
    assert not marker.exists()


async def test_a_file_that_changes_during_its_transfer_is_superseded_by_the_next_version(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"old")
    await discover(engine, partner.server_id)
    path.write_bytes(b"newer")
    await work_off(engine, partner)
    assert partner.statuses == {"a.csv": "superseded"}
    assert "has changed at the source" in partner.file("a.csv")["error_message"]
    await run_once(engine, partner)
    assert [(row["version"], row["status"]) for row in partner.files] == [
        (1, "superseded"),
        (2, "completed"),
    ]
    assert [one["sha256"] for one in partner.notices()] == [sha256(b"newer")]


async def test_a_file_that_vanishes_is_said_to_have_vanished_and_comes_back(
    engine: Engine, partner: Partner
) -> None:
    path = partner.write("a.csv", b"here")
    stamp = path.stat().st_mtime_ns
    await discover(engine, partner.server_id)
    path.unlink()
    await work_off(engine, partner)
    assert partner.statuses == {"a.csv": "vanished"}
    path.write_bytes(b"here")
    os.utime(path, ns=(stamp, stamp))
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed"}
    assert len(partner.files) == 1


@pytest.mark.parametrize("mtime", [0, 1, 2**31 - 1, 2**32 - 1])
async def test_odd_times_are_only_part_of_an_identity(
    engine: Engine, partner: Partner, mtime: int
) -> None:
    path = partner.write("a.csv", b"1")
    os.utime(path, (mtime, mtime))
    await run_once(engine, partner)
    await run_once(engine, partner)
    assert [(row["mtime"], row["status"]) for row in partner.files] == [(mtime, "completed")]
    # Moved in with an older time than what was seen before: new all the same.
    older = partner.write("b.csv", b"2")
    os.utime(older, (5, 5))
    await run_once(engine, partner)
    assert partner.statuses == {"a.csv": "completed", "b.csv": "completed"}


async def test_two_discoverers_at_once_write_each_version_once(
    engine: Engine, partner: Partner
) -> None:
    for number in range(2500):
        (partner.folder / f"{number:05}.csv").touch()
    reports = await asyncio.gather(*(discover(engine, partner.server_id) for _ in range(4)))
    # The others find that somebody looks already, and leave.
    assert sorted(report is not None for report in reports) == [False, False, False, True]
    assert len(partner.files) == 2500


async def test_two_discoverers_that_both_hold_the_scan_write_each_version_once(
    engine: Engine, partner: Partner
) -> None:
    # As after a lease that ended while its holder was only slow.
    from postroad.intake import discovery
    from postroad.intake.listing import Listing

    for number in range(2500):
        (partner.folder / f"{number:05}.csv").touch()
    server = await engine.server(partner.server_id)

    async def look(scan: int) -> None:
        async with engine.lend(server) as source:
            async for page in Listing(source, server).pages():
                await discovery._record(engine, partner.server_id, scan, page)

    await asyncio.gather(look(101), look(102))
    rows = partner.files
    assert len(rows) == 2500
    assert {row["version"] for row in rows} == {1}


@pytest.mark.parametrize("suffix", [None, ".done"])
async def test_a_scan_is_held_on_however_long_it_takes(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch, suffix: str | None
) -> None:
    monkeypatch.setattr(discovery, "SCAN_LEASE", timedelta(seconds=2))
    partner.change(done_suffix=suffix)
    partner.write("a.csv", b"1")
    until: list[datetime] = []

    async def slowly(listing: Listing) -> AsyncIterator[list[Entry]]:
        async for page in PAGES(listing):
            first = partner.server["scan_until"]

            async def extended(first: datetime = first) -> bool:
                until.append(partner.server["scan_until"])
                return bool(until[-1] > first + timedelta(seconds=2))

            await wait_until_async(extended, what="the lease of the scan held on")
            yield page

    monkeypatch.setattr(Listing, "pages", slowly)
    assert await discover(engine, partner.server_id)
    assert len(partner.files) == (suffix is None)


async def test_a_scan_that_lost_its_lease_forgets_no_sighting(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner.change(looks=2)
    for name in ("a.csv", "b.csv"):
        partner.write(name, b"1")
    await discover(engine, partner.server_id)

    async def one_file(listing: Listing) -> AsyncIterator[list[Entry]]:
        async for page in PAGES(listing):
            yield page[:1]

    monkeypatch.setattr(Listing, "pages", one_file)
    monkeypatch.setattr(Keeper, "holds", lambda keeper, key: False)
    await discover(engine, partner.server_id)
    assert len(partner.files) == 1
    assert len(partner.rows("select filename from intake.sightings")) == 1
