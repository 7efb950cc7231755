"""The reference is complete, and as fresh as the sources that it is made from."""

from __future__ import annotations

import re

import pytest
from psycopg import Connection

from tests.docs.snippets import DOCS
from tools.docs import command_page, error_page, function_page, setting_page, table_page
from tools.docs.pages import pages
from tools.docs.sql_source import comment, errors, public


def _reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_generated_page_is_fresh(page: object) -> None:
    file = next(one for one in pages() if one == page)
    assert file.read_text(encoding="utf-8") == pages()[file], "write it anew with: make docs"


def test_every_public_function_of_the_database_is_documented(connection: Connection) -> None:
    connection.execute("select mbus.create_queue('sampleq')")
    connection.execute("select mbus.create_consumer('sampleq', 'samplec')")
    connection.execute("select mbus.create_run_function('sampleq')")
    rows = connection.execute(
        "select distinct p.proname from pg_proc p"
        " where p.pronamespace = 'mbus'::regnamespace and p.proname not like '\\_%'"
        " and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
    ).fetchall()
    names = {
        name.replace("sampleq", "<q>").replace("_by_samplec", "_by_<c>").replace("default", "<c>")
        for (name,) in rows
    }
    documented = set(re.findall(r"^### `([\w<>]+)`$", _reference("sql-functions"), re.MULTILINE))
    assert documented == names


def test_every_public_function_has_a_comment_and_a_topic() -> None:
    listed = {name for names in function_page.TOPICS.values() for name in names}
    assert listed == set(public())
    assert [name for name in public() if not comment(name)] == []


def test_every_column_of_a_view_is_explained(connection: Connection) -> None:
    rows = connection.execute(
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid"
        " where c.relnamespace = 'mbus'::regnamespace and a.attnum > 0 and not a.attisdropped"
        " and (c.relkind = 'v' or c.relname in ('qt_model', 'lease_model', 'reply_model'))"
        " order by c.relname, a.attnum"
    ).fetchall()
    columns: dict[str, list[str]] = {}
    for relation, column in rows:
        columns.setdefault(relation, []).append(column)
    assert {name: list(known) for name, known in table_page.meanings().items()} == columns


def test_every_table_of_the_database_is_described(connection: Connection) -> None:
    rows = connection.execute(
        "select relname from pg_class where relnamespace = 'mbus'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition and relname not like '%$%'"
    ).fetchall()
    text = _reference("sql-tables")
    assert [name for (name,) in rows if f"`mbus.{name}`" not in text] == []


def test_every_command_is_documented_with_an_example() -> None:
    text = _reference("cli")
    for path, _, command in command_page.commands():
        assert re.search(rf"^##+ `{path}`$", text, re.MULTILINE), path
        if not hasattr(command, "commands") and path != "postroad":
            assert "Example" in (command.help or ""), f"{path} has no example"


def test_every_setting_is_documented_with_its_variable() -> None:
    text = _reference("settings")
    for name, field, _ in setting_page.settings():
        assert f"| `{name}` | `{setting_page.variable(name)}` |" in text
        assert field.description, f"{name} does not say what it means"
    assert "PydanticUndefined" not in text


def test_every_error_is_documented_with_what_to_do() -> None:
    text = _reference("errors")
    codes = [leaf.code for leaf in error_page.leaves()]
    assert set(codes) <= set(error_page.advice())
    assert [code for code in codes if f"### {code}\n" not in text] == []


def test_every_code_that_the_sql_raises_has_a_class() -> None:
    raised = {code for name in public() for code in errors(name)}
    assert raised <= {leaf.code for leaf in error_page.leaves()}
