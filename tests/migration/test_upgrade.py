from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from postroad.postgres import install, require, status, upgrade
from postroad.postgres.errors import SchemaBehind, SchemaBusy, SchemaMissing, SchemaNewer
from postroad.testing import TestServer, wait_until
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue
from tests.migration.conftest import Component

pytestmark = pytest.mark.both_versions


def test_a_changed_file_is_replaced_and_grants_follow(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    component.write("templates/greeting.sql", "good day")
    assert status(connection, component.schema).changed == ("templates/greeting.sql",)
    connection.rollback()
    done = upgrade(connection, component.schema)
    assert done.replaced == ("templates/greeting.sql", "grants.sql")
    assert connection.execute("select body from sample.template").fetchone() == ("good day",)
    assert connection.execute("select count(*) from sample.run").fetchone() == (2,)
    assert status(connection, component.schema).is_current


def test_a_replaced_function_is_not_executable_by_public(
    empty_database: str, connect: Connect, component: Component
) -> None:
    component.remove("grants.sql")
    connection = connect(empty_database)
    install(connection, component.schema)
    component.write(
        "functions/add_item.sql",
        component.read("functions/add_item.sql")
        + "create function sample.added() returns integer language sql as 'select 1';",
    )
    upgrade(connection, component.schema)
    found = connection.execute(
        "select count(*) filter (where has_function_privilege('public', p.oid, 'execute')),"
        " count(*) from pg_proc p where p.proname in ('add_item', 'added')"
    )
    assert found.fetchone() == (0, 2)


def test_a_migration_runs_once_and_data_stays(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    connection.execute("select sample.add_item()")
    connection.commit()
    component.add_note()
    assert status(connection, component.schema).pending == ("0001_expand_add_note",)
    connection.rollback()
    assert upgrade(connection, component.schema).migrations == ("0001_expand_add_note",)
    assert upgrade(connection, component.schema).is_unchanged
    assert connection.execute("select id, note from sample.item").fetchall() == [(1, "")]


def test_an_upgrade_waits_for_transactions_without_blocking_others(
    empty_database: str, connect: Connect, component: Component, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, holder = connect(empty_database), connect(empty_database)
    install(connection, component.schema)
    component.add_note()
    holder.execute("select count(*) from sample.item")
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        # Between two attempts nothing waits for a lock, so nobody waits behind the upgrade.
        reader = connect(empty_database)
        reader.execute("set lock_timeout = '1ms'")
        reader.execute("select count(*) from sample.item")
        reader.rollback()
        waits.append(seconds)
        if len(waits) == 3:
            holder.rollback()

    monkeypatch.setattr("postroad.postgres.migrator.time.sleep", sleep)
    assert upgrade(connection, component.schema).migrations == ("0001_expand_add_note",)
    assert len(waits) == 3


def test_an_upgrade_of_a_schema_that_stays_in_use_changes_nothing(
    empty_database: str, connect: Connect, component: Component, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, holder = connect(empty_database), connect(empty_database)
    install(connection, component.schema)
    component.add_note()
    holder.execute("select count(*) from sample.item")
    monkeypatch.setattr("postroad.postgres.migrator.LOCK_TIMEOUTS", (1, 1))
    with pytest.raises(SchemaBusy) as refused:
        upgrade(connection, component.schema)
    assert refused.value.hint
    assert status(connection, component.schema).pending == ("0001_expand_add_note",)


def test_a_migrated_schema_equals_a_fresh_one(
    server: TestServer, connect: Connect, component: Component
) -> None:
    with server.clone() as migrated, server.clone() as fresh:
        one, other = connect(migrated), connect(fresh)
        install(one, component.schema)
        component.add_note()
        upgrade(one, component.schema)
        install(other, component.schema)
        assert catalogue(one, "sample") == catalogue(other, "sample")
        recorded = "select name, breaks_older from sample.migration"
        assert one.execute(recorded).fetchall() == other.execute(recorded).fetchall()
        one.close()
        other.close()


def test_what_a_migration_drops_is_made_again(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    component.write("migrations/0001_contract_drop.sql", "drop function sample.add_item(hstore);")
    upgrade(connection, component.schema)
    assert connection.execute("select sample.add_item()").fetchone() == (1,)


def test_a_removed_file_is_forgotten(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    component.remove("templates/greeting.sql")
    component.write("grants.sql", component.read("grants.sql") + "-- changed\n")
    upgrade(connection, component.schema)
    assert connection.execute("select count(*) from sample.template").fetchone() == (0,)


@pytest.mark.parametrize("verb", [install, upgrade])
def test_a_schema_newer_than_this_postroad_is_refused(
    empty_database: str, connect: Connect, component: Component, verb: object
) -> None:
    connection = connect(empty_database)
    component.add_note()
    install(connection, component.schema)
    component.remove("migrations/0001_expand_add_note.sql")
    component.write("grants.sql", "select 'older';")
    with pytest.raises(SchemaNewer, match="0001_expand_add_note") as refused:
        verb(connection, component.schema)
    assert refused.value.hint


def test_functions_of_a_newer_release_are_not_put_back(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    connection.execute("insert into sample.release (version) values ('999.0.0')")
    connection.commit()
    component.write("grants.sql", "select 'older';")
    with pytest.raises(SchemaNewer, match=r"999\.0\.0"):
        upgrade(connection, component.schema)


def test_a_process_starts_only_on_a_schema_that_fits(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database, autocommit=True)
    with pytest.raises(SchemaMissing):
        require(connection, component.schema)
    install(connection, component.schema)
    require(connection, component.schema)
    component.add_note()
    with pytest.raises(SchemaBehind, match="0001_expand_add_note"):
        require(connection, component.schema)
    upgrade(connection, component.schema)
    component.remove("migrations/0001_expand_add_note.sql")
    require(connection, component.schema)
    component.add_note()
    component.write("migrations/0002_contract_drop_run.sql", "select 1;")
    upgrade(connection, component.schema)
    component.remove("migrations/0002_contract_drop_run.sql")
    with pytest.raises(SchemaNewer, match="0002_contract_drop_run"):
        require(connection, component.schema)


# Raises an error when this session holds the table or the view so that nobody can read it.
HOLDS_NOTHING = """
do $$ begin
  if exists (select from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'
             and relation in (to_regclass('sample.item'), to_regclass('sample.item_count'))) then
    raise 'the table or the view is locked';
  end if;
end $$;
"""


def add_note_ahead(component: Component) -> None:
    component.add_note()
    path = "migrations/0001_expand_add_note.sql"
    body = component.read(path).replace("add column", "add column if not exists")
    component.write(path, f"{body}\n-- the rest runs with the upgrade\n{HOLDS_NOTHING}")


def test_a_column_added_ahead_is_not_locked_while_the_rest_runs(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    add_note_ahead(component)
    assert upgrade(connection, component.schema).migrations == ("0001_expand_add_note",)
    assert status(connection, component.schema).is_current


def test_a_view_is_not_locked_while_the_functions_of_queues_are_replaced(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    component.write("after.sql", HOLDS_NOTHING)
    component.write("views/item_count.sql", component.read("views/item_count.sql") + "-- changed")
    assert "views/item_count.sql" in upgrade(connection, component.schema).replaced


def test_sessions_discard_their_plans_instead_of_searching_them_for_each_function(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection, holder, client = (connect(empty_database) for _ in range(3))
    install(connection, component.schema)
    component.add_note()
    messages: list[str | None] = []
    client.add_notice_handler(lambda diagnostic: messages.append(diagnostic.message_primary))
    client.execute("set client_min_messages = debug4")
    holder.execute("select pg_advisory_xact_lock(1)")
    with ThreadPoolExecutor(1) as pool:
        # An idle session would process invalidations while they arrive.
        busy = pool.submit(client.execute, "select pg_advisory_xact_lock(1)")
        wait_until(
            lambda: bool(connection.execute("select from pg_locks where not granted").fetchall()),
            what="a busy client",
        )
        connection.rollback()
        upgrade(connection, component.schema)
        messages.clear()
        holder.rollback()
        busy.result()
    client.execute("select 1 from sample.item")
    assert "cache state reset" in messages


def test_an_upgrade_that_fails_after_its_changes_ahead_is_repeated(
    empty_database: str, connect: Connect, component: Component
) -> None:
    connection = connect(empty_database)
    install(connection, component.schema)
    add_note_ahead(component)
    path = "migrations/0001_expand_add_note.sql"
    whole = component.read(path)
    component.write(path, whole + "select 1 / 0;")
    with pytest.raises(psycopg.errors.DivisionByZero):
        upgrade(connection, component.schema)
    # The former version works with what is there.
    connection.execute("select sample.add_item()")
    connection.commit()
    assert status(connection, component.schema).pending == ("0001_expand_add_note",)
    connection.rollback()
    component.write(path, whole)
    assert upgrade(connection, component.schema).migrations == ("0001_expand_add_note",)
    assert connection.execute("select note from sample.item").fetchall() == [("",)]
