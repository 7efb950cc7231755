"""The rooms' own schemas: one that was migrated from the first version equals a fresh one."""

from __future__ import annotations

import pytest

from postroad.cli.rooms import SCHEMAS
from postroad.postgres import install, upgrade
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue

# What takes the tables of today back to those of the first version, and functions that have another
# signature by now.
BACK = {
    "mbus": """
        alter table mbus.nudge drop column holders;
        drop table mbus.dropped_queue;
        create function mbus._take_number(integer, integer, bigint) returns setof mbus.parcel
          language sql as 'select null::mbus.parcel';
        create function mbus._take_waiting(integer, integer, bigint) returns setof mbus.parcel
          language sql as 'select null::mbus.parcel';
        drop function mbus._check_holders(text[], bigint[]);
        create function mbus._check_holders(text[], bigint[]) returns void language sql as '';
    """,
    "exchange": """
        alter table exchange.message drop column traceparent;
        alter table exchange.process drop column traceparent;
        drop index exchange.message_by_turn_idx;
        alter table exchange.message drop column turn;
        alter table exchange.database drop column is_restore_told;
        alter table exchange.message drop column is_parked_by_file;
        alter table exchange.lane drop column replies;
    """,
    "coordination": """
        alter table coordination."AppEvent" drop column "TraceParent";
        alter table coordination.staging drop column traceparent;
        alter table coordination.entity drop column related;
        alter table coordination.entity drop constraint entity_role_is_known;
        alter table coordination.entity add constraint entity_role_is_known
          check (role in ('tracked', 'replica'));
        alter table coordination."AppEvent" drop column "CommitNumber" cascade;
        alter table coordination."AppEvent" reset (fillfactor);
        alter table coordination.acknowledged drop column purged_to, drop column writer_to;
        alter table coordination.progress drop column generation, drop column needs_snapshot;
        alter table coordination.reader drop column generation;
        drop table coordination.removed_reader;
    """,
    "intake": """
        alter table intake.imported_files drop column traceparent, drop column lost_workers;
    """,
}


@pytest.mark.parametrize("room", BACK)
def test_a_migrated_room_equals_a_fresh_one(
    empty_database: str, connect: Connect, room: str
) -> None:
    connection = connect(empty_database)
    for schema in SCHEMAS:
        install(connection, schema)
        if schema.name == room:
            break
    fresh = catalogue(connection, room)
    names = connection.execute(f"select name from {room}.migration order by 1".encode()).fetchall()
    assert names, "a room with migrations stands in the list above"
    connection.execute(BACK[room].encode())
    connection.execute(f"delete from {room}.migration".encode())
    connection.commit()
    assert catalogue(connection, room) != fresh
    assert [(one,) for one in upgrade(connection, schema).migrations] == names
    assert catalogue(connection, room) == fresh
