from __future__ import annotations

import hashlib
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.rows import dict_row
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from postroad.intake.models import ImportedFile, IntakeBase, SftpServer

pytestmark = pytest.mark.both_versions

MIB = 1024 * 1024


class Journal:
    """Calls of schema intake, in one transaction that is rolled back."""

    def __init__(self, connection: Connection[Any]) -> None:
        self.connection = connection
        self.server = self.value(
            "insert into intake.sftp_servers (name, host, username, credentials, looks)"
            " values ('acme', 'h', 'u', 'sealed:x', 1) returning id"
        )

    def rows(self, statement: str, *parameters: object) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement.encode(), parameters).fetchall()

    def value(self, statement: str, *parameters: object) -> Any:
        row = self.connection.execute(statement.encode(), parameters).fetchone()
        assert row is not None
        return row[0]

    def see(self, scan: int, *files: tuple[str, int, int]) -> int:
        discovered, _ = self.value(
            "select intake.see(%s, %s, %s, %s, %s, %s, %s)",
            self.server,
            scan,
            [name.encode() for name, _, _ in files],
            [name for name, _, _ in files],
            [size for _, size, _ in files],
            [mtime for _, _, mtime in files],
            [None for _ in files],
        )
        return int(discovered)

    def pick(self, files: int = 100) -> list[list[int]]:
        rows = self.rows(
            "select ids from intake.pick(%s, 'store', %s, %s, %s)",
            self.server,
            MIB,
            files,
            64 * MIB,
        )
        return [row["ids"] for row in rows]

    def claim(self, ids: list[int], step: str = "transfer", owner: str = "me") -> list[Any]:
        return self.rows(
            "select * from intake.claim(%s, %s, %s, interval '10 seconds')", ids, step, owner
        )

    def status(self, file_id: int) -> str:
        found: str = self.value("select status from intake.imported_files where id = %s", file_id)
        return found


@pytest.fixture
def journal(connection: Connection[Any]) -> Journal:
    return Journal(connection)


def test_a_version_is_promoted_once_and_a_growing_file_makes_no_rows(journal: Journal) -> None:
    journal.connection.execute("update intake.sftp_servers set looks = 2")
    for scan, size in enumerate((1, 2, 3), 1):
        assert journal.see(scan, ("a", size, 10)) == 0
    assert journal.see(4, ("a", 3, 10)) == 1
    assert journal.see(5, ("a", 3, 10)) == 0
    assert journal.value("select count(*) from intake.imported_files") == 1
    assert journal.value("select count(*) from intake.sightings") == 0


def test_two_looks_of_one_scan_are_one_look(journal: Journal) -> None:
    journal.connection.execute("update intake.sftp_servers set looks = 2")
    assert journal.see(1, ("a", 1, 1)) == 0
    assert journal.see(1, ("a", 1, 1)) == 0
    assert journal.see(2, ("a", 1, 1)) == 1


@pytest.mark.parametrize("is_analyzed", [True, False])
@pytest.mark.parametrize("looks", [1, 2])
def test_a_page_reads_no_rows_of_other_pages(
    journal: Journal, looks: int, is_analyzed: bool
) -> None:
    journal.connection.execute("update intake.sftp_servers set looks = %s", [looks])
    if is_analyzed:
        # On tables known to be empty all plans cost the same, and the plan is kept.
        journal.connection.execute("analyze intake.sightings, intake.imported_files")
    # A small table is read as a whole.
    journal.connection.execute("set local enable_seqscan = off")
    pages, files = 40, 100
    for page in range(pages):
        journal.see(1, *((f"{page}/{number}", 1, 1) for number in range(files)))
    read = journal.rows(
        "select relname, seq_tup_read + idx_tup_fetch as count from pg_stat_xact_user_tables"
        " where relid in ('intake.sightings'::regclass, 'intake.imported_files'::regclass)"
    )
    assert len(read) == 2
    assert max(row["count"] for row in read) <= 8 * pages * files, read


def test_small_files_share_batches_and_large_ones_have_their_own(journal: Journal) -> None:
    journal.see(1, *((f"s{number}", 10, 1) for number in range(10)), ("large", 5 * MIB, 1))
    batches = journal.pick()
    assert sorted(map(len, batches)) == [1, 3, 3, 3]
    assert journal.pick() == [], "never more than the server's four connections"


def test_a_server_queues_no_more_batches_than_workers_are_busy(journal: Journal) -> None:
    journal.connection.execute("update intake.sftp_servers set max_connections = 64")
    journal.see(1, *((f"{number}", 5 * MIB, 1) for number in range(100)))
    queued = []
    while batches := journal.pick():
        queued.append(len(batches))
        assert journal.pick() == [], "the workers have not begun with these"
        for ids in batches:
            journal.claim(ids)
    assert queued == [4, 4, 8, 16, 32], "64 connections are used when there are workers for them"


def test_a_failing_server_gets_one_probe_at_a_time(journal: Journal) -> None:
    journal.see(1, *((f"l{number}", 5 * MIB, 1) for number in range(4)))
    journal.value("select intake.server_failed(%s, 'unreachable', 'no answer')", journal.server)
    assert journal.pick() == [], "its pause is not over"
    journal.connection.execute("update intake.sftp_servers set retry_at = null")
    assert len(journal.pick()) == 1
    assert journal.pick() == []
    journal.value("select intake.server_works(%s)", journal.server)
    assert len(journal.pick()) == 3


def test_a_holder_whose_lease_ended_can_do_nothing_any_more(journal: Journal) -> None:
    journal.see(1, ("a", 20 * MIB, 1))
    ((file_id,),) = journal.pick()
    (row,) = journal.claim([file_id])
    assert journal.claim([file_id], owner="other") == []
    journal.connection.execute(
        "update intake.imported_files set lease_until = intake.now() - interval '1 second'"
    )
    (other,) = journal.claim([file_id], owner="other")
    assert other["lease_token"] != row["lease_token"]
    journal.connection.execute("savepoint before")
    with pytest.raises(psycopg.Error) as refused:
        journal.value(
            "select intake.store_part(%s, %s, 1, 5, 'e', '\\x00', interval '1 second')",
            file_id,
            row["lease_token"],
        )
    assert refused.value.sqlstate == "IN003"
    journal.connection.execute("rollback to before")
    for call in (
        "select intake.fail(%s, %s, 'x', 3)",
        "select intake.conclude(%s, %s, 'vanished', 'x')",
    ):
        assert not journal.value(call, file_id, row["lease_token"])
    assert journal.status(file_id) == "downloading"


def test_a_part_that_is_noted_twice_counts_once(journal: Journal) -> None:
    journal.see(1, ("a", 20 * MIB, 1))
    ((file_id,),) = journal.pick()
    (row,) = journal.claim([file_id])
    for _ in range(2):
        journal.value(
            "select intake.store_part(%s, %s, 1, 5, 'e', '\\x00', interval '1 second')",
            file_id,
            row["lease_token"],
        )
    assert journal.value("select bytes_done from intake.imported_files") == 5


def test_a_file_that_kills_its_workers_ends_as_failed(journal: Journal) -> None:
    journal.see(1, ("a", 20 * MIB, 1))
    for _ in range(50):
        ((file_id,),) = journal.pick()
        journal.claim([file_id])
        journal.connection.execute(
            "update intake.imported_files set lease_until = intake.now() - interval '1 second'"
        )
        journal.rows("select * from intake.reconcile()")
    assert journal.status(file_id) == "failed"
    problem = journal.value("select error_message from intake.imported_files")
    assert "was lost, the last of 50" in problem
    assert journal.rows("select key, severity, title, body from alerts.report") == [
        {
            "key": f"intake.file.{file_id}",
            "severity": "error",
            "title": f"File {file_id} could not be imported",
            "body": problem,
        }
    ]


def test_a_lost_worker_is_no_try_of_the_file(journal: Journal) -> None:
    journal.see(1, ("a", 20 * MIB, 1))
    for _ in range(3):
        ((file_id,),) = journal.pick()
        journal.claim([file_id])
        journal.connection.execute(
            "update intake.imported_files set lease_until = intake.now() - interval '1 second'"
        )
        journal.rows("select * from intake.reconcile()")
    assert journal.rows("select attempts, lost_workers from intake.imported_files")[0] == {
        "attempts": 0,
        "lost_workers": 3,
    }
    ((file_id,),) = journal.pick()
    (row,) = journal.claim([file_id])
    # The first try of its own that fails: there are others left.
    fail = "select intake.fail(%s, %s, 'permission denied', 3)"
    assert journal.value(fail, file_id, row["lease_token"]) == "discovered"
    assert journal.value("select lost_workers from intake.imported_files") == 0


def test_the_end_and_the_notice_come_together_and_once(journal: Journal) -> None:
    journal.connection.execute("select mbus.create_queue('file_events', payload => 'jsonb')")
    journal.see(1, ("a", 1, 1))
    ((file_id,),) = journal.pick()
    (row,) = journal.claim([file_id])
    digest = hashlib.sha256(b"x").hexdigest()
    uploaded = "select intake.uploaded(%s, %s, 'store', '{acme/a}', %s)"
    assert journal.value(uploaded, [file_id], row["lease_token"], [digest]) == [file_id]
    (row,) = journal.claim([file_id], "notify")
    finish = "select intake.finish(%s, %s)"
    assert journal.value(finish, [file_id], row["lease_token"]) == [file_id]
    assert journal.value(finish, [file_id], row["lease_token"]) == []
    notices = journal.rows("select data from mbus.consumen_file_events_by_default(10)")
    assert [one["data"]["sha256"] for one in notices] == [digest]


def test_nothing_of_the_schema_is_for_everybody(connection: Connection[Any]) -> None:
    rows = connection.execute(
        "select p.proname from pg_proc p where p.pronamespace = 'intake'::regnamespace"
        " and has_function_privilege('public', p.oid, 'execute')"
    ).fetchall()
    assert rows == []


def test_the_entities_can_be_read(database: str) -> None:
    with psycopg.connect(database) as connection:
        Journal(connection).see(1, ("a", 1, 1))
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    IntakeBase.prepare(engine)
    with Session(engine) as session:
        file = session.scalars(select(ImportedFile).join(SftpServer)).one()
        assert (file.server.name, file.filename, file.history[0].status) == (
            "acme",
            "a",
            "discovered",
        )
    engine.dispose()
