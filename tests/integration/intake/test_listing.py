from __future__ import annotations

import os

import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.keys import object_key
from tests.integration.intake.partner import Partner, run_once, sha256


async def test_folders_are_entered_to_the_depth_that_is_asked_for(
    engine: Engine, partner: Partner
) -> None:
    for name in ("top.csv", "a/one.csv", "a/b/two.csv", "a/b/c/three.csv"):
        partner.write(name, name.encode())
    await run_once(engine, partner)
    assert sorted(partner.statuses) == ["top.csv"]
    partner.change(max_depth=2)
    await run_once(engine, partner)
    assert sorted(partner.statuses) == ["a/b/two.csv", "a/one.csv", "top.csv"]
    assert partner.file("a/b/two.csv")["object_key"] == "127.0.0.1/a/b/two.csv"


async def test_names_of_any_bytes_arrive_under_safe_keys(engine: Engine, partner: Partner) -> None:
    names = [
        b"caf\xe9.csv",
        b"new\nline.csv",
        b"tab\there%.csv",
        b"x" * 255,
        b"..data.csv",
        "\u043e\u0442\u0447\u0451\u0442.csv".encode(),
        b"back\\slash:colon*.csv",
        b" spaces .csv ",
    ]
    partner.change(ignore=[])
    for name in names:
        partner.write(name, name)
    await run_once(engine, partner)
    rows = partner.files
    assert {bytes(row["path"]) for row in rows} == set(names)
    assert {row["status"] for row in rows} == {"completed"}
    for row in rows:
        name = bytes(row["path"])
        assert row["file_hash"] == sha256(name)
        assert row["object_key"] == object_key(partner.server["name"], name, 1)
        assert (engine.store.folder / row["object_key"]).read_bytes() == name  # type: ignore[attr-defined]


async def test_links_are_passed_over_and_told(engine: Engine, partner: Partner) -> None:
    partner.write("a.csv", b"1")
    (partner.folder / "link.csv").symlink_to(partner.folder / "a.csv")
    (partner.folder / "loop").symlink_to(partner.folder)
    partner.change(max_depth=20)
    report = await discover(engine, partner.server_id)
    assert report is not None
    assert report["links_passed_over"] == 2
    assert list(partner.statuses) == ["a.csv"]


async def test_a_loop_of_links_that_are_followed_ends(engine: Engine, partner: Partner) -> None:
    partner.change(follows_links=True, max_depth=50)
    partner.write("sub/a.csv", b"1")
    (partner.folder / "sub" / "up").symlink_to(partner.folder)
    (partner.folder / "self").symlink_to(partner.folder / "self")
    (partner.folder / "nowhere").symlink_to("/does/not/exist")
    (partner.folder / "b.csv").symlink_to(partner.folder / "sub" / "a.csv")
    await run_once(engine, partner)
    assert partner.statuses == {"sub/a.csv": "completed", "b.csv": "completed"}
    problems = partner.server["last_scan"]["problems"]
    assert sorted(problem.split(":")[0] for problem in problems) == [
        "the link nowhere leads nowhere",
        "the link self leads nowhere",
    ]


async def test_a_folder_that_may_not_be_read_is_told_and_does_not_stop_the_others(
    engine: Engine, partner: Partner
) -> None:
    partner.change(max_depth=3)
    partner.write("open/a.csv", b"1")
    partner.write("closed/b.csv", b"2")
    (partner.folder / "closed").chmod(0)
    try:
        await run_once(engine, partner)
    finally:
        (partner.folder / "closed").chmod(0o755)
    assert partner.statuses == {"open/a.csv": "completed"}
    assert partner.server["last_scan"]["problems"] == ["closed may not be read: permission denied"]
    assert partner.server["status"] == "ok"


async def test_a_hundred_thousand_files_are_discovered_by_few_statements(
    engine: Engine, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = int(os.environ.get("POSTROAD_TEST_FILES", "20000"))
    for number in range(count):
        os.close(os.open(partner.folder / f"{number:06}.csv", os.O_CREAT | os.O_WRONLY, 0o644))
    statements = 0
    rows = engine.journal.rows

    async def counted(*arguments: object) -> object:
        nonlocal statements
        statements += 1
        return await rows(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(engine.journal, "rows", counted)
    report = await discover(engine, partner.server_id)
    assert report is not None
    assert (report["files"], report["discovered"]) == (count, count)
    assert statements <= 20 + 1.5 * count / 1000
    report = await discover(engine, partner.server_id)
    assert report is not None
    assert (report["files"], report["discovered"]) == (count, 0)
