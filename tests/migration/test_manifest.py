from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from postroad.cli.components import SCHEMAS
from postroad.postgres.errors import ManifestBroken
from postroad.postgres.manifest import Schema, read_manifest
from tests.migration.conftest import Room


def test_files_come_in_the_order_of_the_manifest(room: Room) -> None:
    paths = [file.path for file in read_manifest(room.schema).files]
    assert paths[:3] == ["internal/now.sql", "tables/template.sql", "tables/item.sql"]


def test_a_line_can_list_all_files_of_a_folder(room: Room) -> None:
    room.write("templates/zebra.sql", "select 1;")
    room.write("templates/ant.sql", "select 1;")
    room.write("install.sql", "-- all of them\ntemplates/*.sql\n")
    paths = [file.path for file in read_manifest(room.schema).files]
    assert paths == sorted(paths)
    assert {"templates/ant.sql", "templates/zebra.sql"} <= set(paths)


def test_migrations_come_in_the_order_of_their_numbers_and_say_what_they_break(room: Room) -> None:
    room.write("migrations/0002_contract_drop_rank.sql", "-- breaks older: no\nselect 1;")
    room.write("migrations/0001_expand_add_priority.sql", "select 1;")
    room.write("migrations/0003_contract_drop_group.sql", "select 1;")
    found = [(one.name, one.breaks_older) for one in read_manifest(room.schema).migrations]
    assert found == [
        ("0001_expand_add_priority", False),
        ("0002_contract_drop_rank", False),
        ("0003_contract_drop_group", True),
    ]


@pytest.mark.parametrize(
    ("manifest", "complaint"),
    [
        ("functions/absent.sql", "does not exist"),
        ("strange/thing.sql", "not a kind of file"),
        ("functions/../install.sql", "not a kind of file"),
        ("grants.sql\ngrants.sql", "twice"),
    ],
)
def test_a_manifest_that_contradicts_the_files_is_refused(
    room: Room, manifest: str, complaint: str
) -> None:
    room.write("install.sql", manifest)
    with pytest.raises(ManifestBroken, match=complaint):
        read_manifest(room.schema)


@pytest.mark.parametrize("name", ["1_expand_x.sql", "0001_change_x.sql", "0001_expand_X.sql"])
def test_a_migration_is_named_by_number_and_direction(room: Room, name: str) -> None:
    room.write(f"migrations/{name}", "select 1;")
    with pytest.raises(ManifestBroken, match="neither expand nor contract"):
        read_manifest(room.schema)


def test_two_migrations_never_share_a_number(room: Room) -> None:
    room.write("migrations/0001_expand_one.sql", "select 1;")
    room.write("migrations/0001_expand_two.sql", "select 1;")
    with pytest.raises(ManifestBroken, match="0001"):
        read_manifest(room.schema)


def unlisted_files(schema: Schema) -> set[str]:
    top, *below = schema.package.split(".")
    folder = Path(str(files(top).joinpath(*below, "sql")))
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.sql")}
    listed = {file.path for file in read_manifest(schema).files}
    return {path for path in found - listed - {"install.sql"} if not path.startswith("migrations/")}


def test_a_file_that_is_not_listed_is_noticed(room: Room) -> None:
    room.write("functions/forgotten.sql", "select 1;")
    assert unlisted_files(room.schema) == {"functions/forgotten.sql"}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_every_file_of_every_room_is_listed(schema: Schema) -> None:
    assert unlisted_files(schema) == set()
