"""The components' own schemas: one that was migrated from the first version equals a fresh one."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import Connection
from psycopg.errors import RaiseException

from postroad.cli.components import BRIDGE, SCHEMAS
from postroad.postgres import install, upgrade
from tests.fixtures.postgres import Connect
from tests.migration.catalogue import catalogue

# What takes the tables of today back to those of the first version, and functions that have another
# signature by now.
BACK = {
    "mbus": """
        alter table mbus.nudge drop column holders;
        alter table mbus.node drop column database_oid, drop column table_oid,
          drop column system_identifier;
        drop function mbus._accept(integer, mbus.parcel, timestamptz, text);
        create function mbus._accept(integer, mbus.parcel, timestamptz, text) returns void
          language sql as '';
        drop function mbus._reserved(mbus.queue, text);
        create function mbus._reserved(mbus.queue, text) returns bigint language sql as 'select 1';
        drop function mbus.redrive(text, text, text, integer, timestamptz);
        create function mbus.redrive(text, text, text) returns bigint language sql as 'select 1';
        create function mbus.post(text, jsonb, hstore, hstore, timestamptz, timestamptz, text)
          returns text language sql as 'select null::text';
        drop function mbus.after_restore(boolean);
        create function mbus.after_restore() returns void language sql as '';
        drop sequence mbus.tick;
        drop table mbus.dedup;
        drop sequence mbus.dedup_tail;
        create table mbus.dedup (
          queue_id integer not null, key text not null, number bigint not null,
          until timestamptz not null,
          constraint key_is_unique_in_its_queue primary key (queue_id, key));
        create index dedup_ends_idx on mbus.dedup (until);
        drop table mbus.pause cascade;
        drop table mbus.schedule cascade;
        drop table mbus.schedule_run;
        drop table mbus.dead_original cascade;
        alter table mbus.consumer drop column contract cascade;
        drop function mbus._holders;
        create function mbus._holders(regclass) returns text[]
          language sql as 'select null::text[]';
        drop table mbus.retained cascade;
        drop table mbus.measure cascade;
        drop table mbus.replay, mbus.replay_copy cascade;
        drop function mbus._create_payload_table(text, text, text);
        create function mbus._create_payload_table(text, text) returns void
          language sql as '';
        drop function mbus.alter_queue(text, boolean, interval, bigint, text, jsonb);
        create function mbus.alter_queue(text, boolean, interval, bigint) returns void
          language sql as '';
        drop function mbus.create_consumer;
        create function mbus.create_consumer(text, text, text, boolean) returns void
          language sql as '';
        drop table mbus.consumer_limit, mbus.limited_key cascade;
        alter table mbus.queue drop column retain cascade, drop column retain_size cascade,
          drop column track cascade, drop column schema cascade;
        alter table mbus.dmq drop column fingerprint cascade;
        drop index mbus.saga_by_state_idx;
        drop table mbus.delayed;
        drop sequence mbus.delayed_id, mbus.delayed_tail;
        create table mbus.delayed (
          id bigint generated always as identity primary key, queue_id integer not null,
          consumer_id integer, group_name text, due_at timestamptz not null,
          number bigint not null, added timestamptz not null, expires timestamptz, headers hstore,
          properties hstore, trail jsonb, recipients integer[],
          data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea);
        create index delayed_due_idx on mbus.delayed (queue_id, due_at);
        create index delayed_expires_idx on mbus.delayed (queue_id, expires)
          where expires is not null;
        create index delayed_by_number_idx on mbus.delayed (queue_id, number);
        create index delayed_holds_group_idx on mbus.delayed (consumer_id, group_name)
          where group_name is not null;
        drop sequence mbus.lease_floor;
        alter table mbus.leased alter column token set default nextval('mbus.lease_token');
        drop index mbus.leased_holds_group_idx;
        create index leased_holds_group_idx on mbus.leased (consumer_id, group_name)
          where group_name is not null;
        alter table mbus.leased add foreign key (queue_id) references mbus.queue (id);
        alter table mbus.leased add foreign key (consumer_id) references mbus.consumer (id);
        alter table mbus.delayed add foreign key (queue_id) references mbus.queue (id);
        alter table mbus.delayed add foreign key (consumer_id) references mbus.consumer (id);
        alter table mbus.blocked add foreign key (queue_id) references mbus.queue (id);
        alter table mbus.reserved add foreign key (queue_id) references mbus.queue (id);
        alter table mbus.dedup add foreign key (queue_id) references mbus.queue (id);
        create function mbus._expire(mbus.queue, integer) returns bigint language sql as 'select 1';
        create function mbus._expire_aside(mbus.queue, integer) returns bigint
          language sql as 'select 1';
        create function mbus._waiting(mbus.queue, mbus.consumer) returns bigint
          language sql as 'select 1';
        drop table mbus.dropped_queue;
        drop table mbus.unique_key;
        create function mbus._is_first(integer, mbus.parcel) returns boolean
          language sql as 'select true';
        create function mbus._take_number(integer, integer, bigint) returns setof mbus.parcel
          language sql as 'select null::mbus.parcel';
        create function mbus._take_waiting(integer, integer, bigint) returns setof mbus.parcel
          language sql as 'select null::mbus.parcel';
        create function mbus._check_holders(text[], bigint[]) returns void language sql as '';
        alter table mbus.sample add column ready bigint not null;
        drop table mbus.traffic;
        drop table mbus.worker cascade;
        drop table mbus.tally;
        drop function mbus.purge;
        drop function mbus.browse;
        drop function mbus.dead_reasons;
        create function mbus.dead_reasons(text) returns void language sql as '';
        create function mbus.purge(text, text, text, integer) returns bigint
          language sql as 'select 0::bigint';
    """,
    "alerts": """
        drop table alerts.handling cascade;
        create function alerts._tell(alerts.channel, bigint) returns void language sql as '';
    """,
    "broker": "drop sequence broker.maintained",
    "bridge": """
        create table bridge.shard (logical text, name text, database text, state text,
          weight integer);
        create table bridge.gate (logical text, is_open boolean);
        create sequence bridge.shard_epoch;
        create function bridge.enter(text) returns boolean language sql as 'select true';
        create function bridge._turn(interval) returns void language sql as '';
        create function bridge.add_shard(text, text, text, integer) returns void
          language sql as '';
    """,
    "exchange": """
        drop view exchange.database_list, exchange.client_list;
        drop view exchange.process_list, exchange.message_list, exchange.server_list;
        alter table exchange.message drop column object cascade;
        drop table exchange.member cascade;
        alter table exchange.server drop column sweeper, drop column runs,
          drop column second_root_id, drop column second_root_path, drop column is_migrating;
        drop function exchange.tick;
        create function exchange.tick(bigint, double precision) returns void language sql as '';
        drop function exchange.report_running;
        drop function exchange.placed;
        create function exchange.placed(bigint, bigint[], bigint[], text[]) returns void
          language sql as '';
        alter table exchange.message drop column traceparent cascade;
        alter table exchange.process drop column traceparent cascade;
        drop index exchange.message_by_id_idx, exchange.message_by_file_name_idx;
        drop index exchange.message_by_turn_idx;
        alter table exchange.message drop column turn;
        alter table exchange.database drop column is_restore_told;
        alter table exchange.message drop column is_parked_by_file;
        alter table exchange.lane drop column replies;
        alter table exchange.server drop column root_path;
        alter table exchange.client drop column may_send, drop column may_take;
        create function exchange._tell_restored() returns void language sql as '';
    """,
    "coordination": """
        alter table coordination."AppEvent" drop column "TraceParent";
        alter table coordination.staging drop column traceparent;
        alter table coordination.entity drop column related;
        alter table coordination.entity drop constraint entity_role_is_known;
        alter table coordination.entity add constraint entity_role_is_known
          check (role in ('tracked', 'replica'));
        drop index coordination.entity_table_idx;
        alter table coordination.entity add constraint table_is_registered_once
          unique (schema_name, table_name);
        alter table coordination."AppEvent" drop column "CommitNumber" cascade;
        alter table coordination."AppEvent" reset (fillfactor);
        alter table coordination.acknowledged drop column purged_to, drop column writer_to;
        alter table coordination.progress drop column generation, drop column needs_snapshot;
        alter table coordination.reader drop column generation;
        drop table coordination.removed_reader, coordination.unrestored;
        drop view coordination.payload_row cascade;
        drop type coordination.page cascade;
        alter table coordination.payload drop column changed, drop column count;
        alter sequence coordination.payload_id increment by 1;
        drop sequence coordination.publisher_waits;
        drop table coordination.reader_progress cascade;
        alter table coordination."WriterEvent" drop column "PublishedAt";
        alter table coordination."WriterEvent"
          add constraint "WriterEvent_AppEventTypeId_fkey"
            foreign key ("AppEventTypeId") references coordination."AppEventType",
          add constraint "WriterEvent_AppEventStatusId_fkey"
            foreign key ("AppEventStatusId") references coordination."AppEventStatus";
        alter table coordination."WriterEvent" drop column "RollbackReason" cascade;
    """,
    "intake": """
        drop view intake.server_status;
        drop view intake.file_list;
        drop table intake.listings;
        create index sightings_scan_idx on intake.sightings (server_id, scan);
        drop index intake.imported_files_by_name_idx;
        alter table intake.imported_files drop column traceparent, drop column lost_workers;
        alter table intake.imported_files drop column same_as;
        alter table intake.imported_files drop column notice cascade;
        alter table intake.sftp_servers drop column trusts_first_key;
    """,
}


@pytest.mark.parametrize("component", BACK)
def test_a_migrated_room_equals_a_fresh_one(
    empty_database: str, connect: Connect, component: str
) -> None:
    connection = connect(empty_database)
    # All of them, as in every database: objects of one may depend on those of another.
    for each in SCHEMAS:
        install(connection, each)
    (schema,) = (each for each in SCHEMAS if each.name == component)
    fresh = catalogue(connection, component)
    names = connection.execute(
        f"select name from {component}.migration order by 1".encode()
    ).fetchall()
    assert names, "a component with migrations stands in the list above"
    connection.execute(BACK[component].encode())
    connection.execute(f"delete from {component}.migration".encode())
    connection.commit()
    assert catalogue(connection, component) != fresh
    assert [(one,) for one in upgrade(connection, schema).migrations] == names
    assert catalogue(connection, component) == fresh


def test_the_body_of_every_function_is_valid(empty_database: str, connect: Connect) -> None:
    connection = connect(empty_database)
    for each in SCHEMAS:
        install(connection, each)
    bodies = connection.execute(
        """
        select pg_get_functiondef(p.oid) from pg_proc p join pg_language l on l.oid = p.prolang
        where p.pronamespace = any (%s::regnamespace[]) and l.lanname in ('sql', 'plpgsql')
        """,
        ([each.name for each in SCHEMAS],),
    ).fetchall()
    assert len(bodies) > 500
    connection.execute("set check_function_bodies = on")
    for (body,) in bodies:
        connection.execute(body.encode())


def test_an_upgrade_does_not_drop_a_list_of_shards(empty_database: str, connect: Connect) -> None:
    connection = connect(empty_database)
    for each in SCHEMAS:
        install(connection, each)
    connection.execute(BACK["bridge"].encode())
    connection.execute("insert into bridge.shard values ('orders', 'a', 'a', 'active', 1)")
    connection.execute("delete from bridge.migration")
    connection.commit()
    with pytest.raises(RaiseException, match="schema bridge lists shards"):
        upgrade(connection, BRIDGE)
    connection.rollback()
    connection.execute("delete from bridge.shard")
    connection.commit()
    upgrade(connection, BRIDGE)


def _upgrade_coordination(connection: Connection[Any], before: str) -> None:
    """Bring the component of a first version, in which this was done, to today's."""
    for schema in SCHEMAS:
        install(connection, schema)
        if schema.name == "coordination":
            break
    connection.execute(before.encode())
    connection.execute(BACK["coordination"].encode())
    connection.execute("delete from coordination.migration")
    connection.commit()
    upgrade(connection, schema)


EVENTS = """
    select coordination.become('writer', 'writer');
    insert into coordination."AppEventType" ("Id", "Name", "Entity", "Operation")
      values (1, 'Item.Insert', 'Item', 'Insert');
    update coordination.acknowledged set finished_to = 8;
    insert into coordination."AppEvent" ("AppEventTypeId", "Position", "IsPublished")
      select 1, p, true from unnest(%s::bigint[]) p;
"""


@pytest.mark.parametrize(("kept", "purged_to"), [("{5,7,9}", 4), ("{1,2}", 0), ("{}", 8)])
def test_what_a_writer_of_an_older_version_removed_is_known_after_the_upgrade(
    empty_database: str, connect: Connect, kept: str, purged_to: int
) -> None:
    connection = connect(empty_database)
    _upgrade_coordination(connection, EVENTS.replace("%s", f"'{kept}'"))
    found = connection.execute("select purged_to from coordination.acknowledged").fetchone()
    assert found == (purged_to,)


def test_an_alert_of_an_older_version_is_cleared_and_its_event_tried_once_more(
    empty_database: str, connect: Connect
) -> None:
    connection = connect(empty_database)
    _upgrade_coordination(
        connection,
        """
        select coordination.become('reader', 'r1');
        insert into coordination.staging (event_id, position, count, mode, entities, type_name,
          date, correlation_id, reason, attempts, parked_at, next_try_at)
        values (7, 1, 1, 'replicate', '{Item}', 'Item.Insert', now(), gen_random_uuid(),
          'refused', 5, now(), now());
        """,
    )
    reports = connection.execute("select is_raise, key from alerts.report").fetchall()
    assert reports == [(False, "coordination.parked.7")]
    staged = connection.execute(
        "select attempts, parked_at, next_try_at from coordination.staging"
    ).fetchall()
    assert staged == [(4, None, None)]


def test_leases_of_an_older_version_are_answered_after_the_upgrade(
    empty_database: str, connect: Connect
) -> None:
    connection = connect(empty_database)
    for schema in SCHEMAS:
        install(connection, schema)
    (bus,) = (each for each in SCHEMAS if each.name == "mbus")
    connection.execute("select mbus.create_queue('q'), mbus.create_queue('r')")
    connection.execute("select mbus.create_consumer('r', 'second')")
    connection.execute("select mbus.postn_q(array_fill('a=>1'::hstore, array[3]))")
    connection.execute("select mbus.post_r('a=>1')")
    # As an older version leased it: taken from the ring, with a copy beside it.
    (iid, token) = connection.execute(
        """
        with taken as (select * from mbus.consume('q'))
        , held as (
          insert into mbus.leased
            (queue_id, consumer_id, leased_until, number, added, data_hstore)
          select q.id, c.id, mbus.now() + interval '1 minute', t.id, t.added, t.data
          from taken t join mbus.queue q on q.name = 'q' join mbus.consumer c on c.queue_id = q.id
          returning token)
        select t.iid, h.token from taken t cross join held h
        """
    ).fetchone() or ("", 0)
    connection.execute(BACK["mbus"].encode())
    for (table,) in connection.execute(
        r"select relname from pg_class where relkind = 'r' and relname ~ '^q[tc]\$'"
    ).fetchall():
        connection.execute(
            f'alter table mbus."{table}" drop column token, drop column leased_until'.encode()
        )
        connection.execute(f'drop sequence mbus."{table}$base"'.encode())
    connection.execute(
        "insert into mbus.delayed (queue_id, due_at, number, added, data_hstore)"
        " select id, mbus.now(), 99, mbus.now(), 'a=>1' from mbus.queue where name = 'q'"
    )
    connection.execute("delete from mbus.migration")
    connection.commit()
    upgrade(connection, bus)
    connection.execute("select mbus.maintain('q')")
    leased = connection.execute(
        "select iid, token from mbus.lease_q_by_default(10)"
        " union all select iid, token from mbus.lease_r_by_second(10)"
    ).fetchall()
    assert len(leased) == 4  # two of the ring, the delayed one, and the one of queue r
    assert connection.execute("select count(*) from mbus.consumen_q_by_default(10)").fetchone() == (
        0,
    )
    leased.append((iid, token))
    left = connection.execute(
        "select mbus.ackn(%s, %s)", ([each[0] for each in leased], [each[1] for each in leased])
    ).fetchone()
    assert left == ([],)
