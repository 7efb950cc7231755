from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from postroad.cli.components import SCHEMAS
from postroad.postgres.errors import ManifestBroken
from postroad.postgres.manifest import Schema, read_manifest
from tests.migration.conftest import Component


def test_files_come_by_folder_and_name_the_named_ones_first(component: Component) -> None:
    paths = [file.path for file in read_manifest(component.schema).files]
    assert paths == [
        "tables/template.sql",
        "tables/item.sql",
        "tables/run.sql",
        "internal/now.sql",
        "functions/add_item.sql",
        "templates/greeting.sql",
        "after.sql",
        "views/item_count.sql",
        "grants.sql",
    ]


def test_a_component_without_a_manifest_has_its_files_by_name(component: Component) -> None:
    component.remove("install.sql")
    paths = [file.path for file in read_manifest(component.schema).files]
    assert paths[:3] == ["tables/item.sql", "tables/run.sql", "tables/template.sql"]


def test_a_package_without_sql_files_is_refused() -> None:
    with pytest.raises(ManifestBroken, match="no SQL files"):
        read_manifest(Schema("sample", "tests.unit"))


def test_migrations_come_in_the_order_of_their_numbers_and_say_what_they_break(
    component: Component,
) -> None:
    component.write("migrations/0002_contract_drop_rank.sql", "-- breaks older: no\nselect 1;")
    component.write("migrations/0001_expand_add_priority.sql", "select 1;")
    component.write("migrations/0003_contract_drop_group.sql", "select 1;")
    found = [(one.name, one.breaks_older) for one in read_manifest(component.schema).migrations]
    assert found == [
        ("0001_expand_add_priority", False),
        ("0002_contract_drop_rank", False),
        ("0003_contract_drop_group", True),
    ]


@pytest.mark.parametrize(
    "path", ["functions/absent.sql", "strange/thing.sql", "functions/../install.sql"]
)
def test_a_manifest_that_names_an_absent_file_is_refused(component: Component, path: str) -> None:
    component.write("strange/thing.sql", "select 1;")
    component.write("install.sql", path)
    with pytest.raises(ManifestBroken, match=re.escape(path)):
        read_manifest(component.schema)


@pytest.mark.parametrize("name", ["1_expand_x.sql", "0001_change_x.sql", "0001_expand_X.sql"])
def test_a_migration_is_named_by_number_and_direction(component: Component, name: str) -> None:
    component.write(f"migrations/{name}", "select 1;")
    with pytest.raises(ManifestBroken, match="neither expand nor contract"):
        read_manifest(component.schema)


def test_two_migrations_never_share_a_number(component: Component) -> None:
    component.write("migrations/0001_expand_one.sql", "select 1;")
    component.write("migrations/0001_expand_two.sql", "select 1;")
    with pytest.raises(ManifestBroken, match="0001"):
        read_manifest(component.schema)


def test_a_migration_creates_the_table_of_a_file(component: Component) -> None:
    component.write(
        "migrations/0001_expand_run.sql", "select 1;\n-- creates: tables/run.sql\nselect 2;\n"
    )
    (migration,) = read_manifest(component.schema).migrations
    assert migration.body == f"select 1;\n{component.read('tables/run.sql')}\nselect 2;\n"


def test_a_migration_that_creates_an_absent_table_is_refused(component: Component) -> None:
    component.write("migrations/0001_expand_absent.sql", "-- creates: tables/absent.sql\n")
    with pytest.raises(ManifestBroken, match=r"0001_expand_absent\.sql creates tables/absent\.sql"):
        read_manifest(component.schema)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_file_of_every_room_has_a_kind(schema: Schema) -> None:
    top, *below = schema.package.split(".")
    folder = Path(str(files(top).joinpath(*below, "sql")))
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.sql")}
    found -= {file.path for file in read_manifest(schema).files} | {"install.sql"}
    assert {path for path in found if not path.startswith("migrations/")} == set()
