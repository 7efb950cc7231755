from __future__ import annotations

import os

from postroad.intake.engine import Engine
from tests.integration.intake.partner import Partner, run_once, sha256


async def test_files_of_every_size_arrive_whole_with_hash_and_one_notice(
    engine: Engine, partner: Partner
) -> None:
    contents = {
        "empty.csv": b"",
        "one.csv": b"x",
        "small.csv": os.urandom(300_000),
        "large.bin": os.urandom(20_000_001),
    }
    for name, data in contents.items():
        partner.write(name, data)
    await run_once(engine, partner)
    assert partner.statuses == dict.fromkeys(contents, "completed")
    for name, data in contents.items():
        row = partner.file(name)
        assert row["file_hash"] == sha256(data)
        assert (engine.store.folder / row["object_key"]).read_bytes() == data  # type: ignore[attr-defined]
    notices = partner.notices()
    assert sorted(one["filename"] for one in notices) == sorted(contents)
    assert {one["sha256"] for one in notices} == {sha256(data) for data in contents.values()}
    await run_once(engine, partner)
    assert partner.notices() == []
    assert len(partner.files) == len(contents)
