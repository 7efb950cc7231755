"""Mutants of texts are the expected ones, and tests notice what they must."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroad.testing import TestServer
from proof.mutations import groups, mutants_of, stale
from proof.mutations.judge import SOURCE, Judge
from proof.mutations.mutant import Mutant
from proof.mutations.python_mutator import python_mutants
from proof.mutations.sql_mutator import sql_mutants

FUNCTION = """
create or replace function mbus.end_lease(p_token bigint) returns integer
language plpgsql set search_path from current as $$
declare
  v_row record;
begin
  perform pg_advisory_xact_lock(1, 2);
  select * into v_row from mbus.leased l
  where l.token = p_token and l.leased_until > mbus.now() order by l.number for update skip locked;
  if not found then return 0; end if;
  execute format('delete from mbus.%I s where s.token = $1 or s.origin is null', 'leased');
  raise exception 'neither this and that' using hint = 'Nor this or that.';
end $$;
"""
PROGRAM = '''
"""A lease."""

LIMIT: bool = True


def end(self, file, now):
    with self.lock:
        if self.until >= now and file is not None:
            os.fsync(file)
        log.info("ended")
        while True:
            raise LeaseLost
'''


def changes(mutants: list[Mutant]) -> set[tuple[str, str, str]]:
    return {(one.operator, one.before, one.after) for one in mutants}


def test_a_sql_function_loses_locks_fences_conditions_and_statements() -> None:
    assert changes(sql_mutants("bus/sql/functions/x.sql", FUNCTION)) == {
        ("drop a lock", "perform pg_advisory_xact_lock(1, 2)", "null"),
        ("drop a fence", "l.token = p_token", "true"),
        ("drop a fence", "l.leased_until > mbus.now()", "true"),
        ("move a border", ">", ">="),
        ("reverse an order", "", " desc"),
        ("drop a lock", "for update skip locked", ""),
        ("wait for a lock", "skip locked", ""),
        ("negate a condition", "not found", "not (not found)"),
        (
            "drop a statement",
            "execute format('delete from mbus.%I s where s.token = $1 or s.origin is null',"
            " 'leased')",
            "null",
        ),
        ("drop an alternative", "s.token = $1", "false"),
        ("drop an alternative", "s.origin is null", "false"),
        (
            "drop an error",
            "raise exception 'neither this and that' using hint = 'Nor this or that.'",
            "null",
        ),
    }


def test_every_mutant_of_sql_names_its_function_and_line() -> None:
    mutants = sql_mutants("bus/sql/functions/x.sql", FUNCTION)
    assert {one.function for one in mutants} == {"mbus.end_lease"}
    [lock] = [one for one in mutants if one.operator == "wait for a lock"]
    assert FUNCTION.splitlines()[lock.line - 1].endswith("skip locked;")


def test_a_python_function_loses_locks_conditions_and_statements() -> None:
    assert changes(python_mutants("x.py", PROGRAM)) == {
        ("drop a lock", "with self.lock", "if True"),
        ("drop a condition", "self.until >= now", "True"),
        ("drop a condition", "file is not None", "True"),
        ("move a border", ">=", ">"),
        ("drop a statement", "os.fsync(file)", "pass"),
        ("flip a constant", "True", "False"),
        ("drop an error", "raise LeaseLost", "pass"),
    }


def test_a_text_that_differs_in_white_space_only_is_no_mutant() -> None:
    assert sql_mutants("x.sql", "select  1 ;\n-- a and b\nselect 'a and b';\n") == []
    assert python_mutants("x.py", 'def f():\n    """a and b"""\n    return 1\n') == []


def test_comments_and_messages_are_not_mutated() -> None:
    text = "do $$ begin raise notice 'x and y or z'; /* a and b */ end $$; -- c or d"
    assert {one.operator for one in sql_mutants("x.sql", text)} == {"drop an error"}


def test_equal_texts_of_a_function_have_names_of_their_own() -> None:
    text = "select from t where a and b;\nselect from t where a and b;\n"
    names = [one.name for one in sql_mutants("x.sql", text)]
    assert len(names) == len(set(names)) == 4
    # Lines before a mutant do not change its name.
    assert [one.name for one in sql_mutants("x.sql", "\n\n" + text)] == names


def test_an_explanation_goes_stale() -> None:
    [first, second] = sql_mutants("x.sql", "select from t where a and b;")
    assert stale([first.name], [first, second], []) == []
    assert stale([first.name], [first, second], [first.name]) == [
        f"explained.toml has {first.name}, which a test has"
    ]
    assert stale(["00000000"], [first], []) == ["explained.toml has 00000000, which no mutant has"]


def test_the_explanations_belong_to_mutants() -> None:
    from proof.mutations import explained

    there = [mutant for group in groups() for file in group.files for mutant in mutants_of(file)]
    assert stale(explained(), there, []) == []


@pytest.fixture
def judge(server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PGOPTIONS", "")
    judge = Judge(server, [], tmp_path)
    yield judge
    judge.close()


def test_a_test_notices_a_lease_without_a_fence(judge: Judge) -> None:
    [mutant] = [
        one
        for one in mutants_of("bus/sql/functions/leases.sql")
        if (one.function, one.operator) == ("mbus._take_held", "drop a fence")
        and one.before == "s.leased_until > $4"
    ]
    verdict = judge.judge(mutant, ("tests/sql/test_leases.py",))
    assert verdict.state == "killed"
    assert verdict.by.startswith("tests/sql/test_leases.py::")
    # The database has the original again, which other tests do not complain of.
    assert judge._run(("tests/sql/test_leases.py",), None, {verdict.by: 1})["state"] == "survived"


def test_a_test_that_does_not_run_the_code_notices_nothing(judge: Judge) -> None:
    [mutant, *_] = mutants_of("bus/sql/functions/replay.sql")
    verdict = judge.judge(mutant, ("tests/unit/lease/test_keeper.py",))
    assert (verdict.state, verdict.by) == ("survived", "")


def test_a_program_without_its_lock_is_imported_instead(judge: Judge) -> None:
    [mutant] = [
        one
        for one in mutants_of("lease/keeper.py")
        if one.function == "Keeper.claim" and one.operator == "drop a statement"
    ]
    verdict = judge.judge(mutant, ("tests/unit/lease/test_keeper.py",))
    assert (verdict.state, (SOURCE / mutant.file).exists()) == ("killed", True)
