"""Bad input: a clear error with its own SQLSTATE, and nothing changed."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.sql.calls import lease, one, post, refused, rows

pytestmark = pytest.mark.both_versions

LONG = "x" * 50

CASES = [
    # unknown queue
    ("post('none', 'n=>1')", "MB001"),
    ("post('none', '{}'::jsonb)", "MB001"),
    ("post(null, 'n=>1')", "MB001"),
    ("consume('none')", "MB001"),
    ("consume(null)", "MB001"),
    ("get_iid('none')", "MB001"),
    ("take('none.1@x')", "MB001"),
    ("take(null)", "MB009"),
    ("take('')", "MB009"),
    ("create_view('q', 'default', 'pg_catalog', 'pg_class')", "MB012"),
    ("drop_queue('none')", "MB001"),
    ("create_consumer('none', 'c')", "MB001"),
    ("drop_consumer('none', 'c')", "MB001"),
    ("alter_consumer('none', 'c')", "MB001"),
    ("redrive('none')", "MB001"),
    ("maintain('none')", "MB001"),
    ("create_view('none')", "MB001"),
    ("reject('none', 'default', 'none.1@x')", "MB001"),
    ("ack('none.1@x', 1)", "MB001"),
    # unknown consumer
    ("consume('q', 'none')", "MB002"),
    ("consume('q', null)", "MB002"),
    ("drop_consumer('q', 'none')", "MB002"),
    ("alter_consumer('q', 'none')", "MB002"),
    ("redrive('q', 'none')", "MB002"),
    ("reject('q', 'none', 'q.1@x')", "MB002"),
    # shapes and existing things
    ("alter_queue('none', true)", "MB001"),
    ("alter_queue('q', null)", "MB012"),
    ("create_queue('q', payload => 'text')", "MB003"),
    ("create_consumer('q', 'default')", "MB004"),
    ("drop_consumer('q', 'default')", "MB016"),
    # names
    ("create_queue('Q')", "MB005"),
    ("create_queue('a-b')", "MB005"),
    ("create_queue('a b')", "MB005"),
    ("create_queue('')", "MB005"),
    ("create_queue(null)", "MB005"),
    ("create_queue('é')", "MB005"),
    ("create_queue('a$b')", "MB005"),
    ("create_queue(e'a\\n')", "MB005"),
    ("create_queue('a''; drop table mbus.queue; --')", "MB005"),
    ("create_consumer('q', 'C')", "MB005"),
    ("create_consumer('q', 'a.b')", "MB005"),
    ("create_consumer('q', '')", "MB005"),
    ("create_consumer('q', null)", "MB005"),
    (f"create_queue('{LONG}')", "MB006"),
    (f"create_consumer('q', '{LONG}')", "MB006"),
    ("create_consumer('pair', 'one_by_two')", "MB007"),
    ("create_queue('from_q_by_default')", "MB007"),
    # selectors
    ("create_consumer('q', 'c', 't.data->')", "MB008"),
    ("create_consumer('q', 'c', 't.data')", "MB008"),
    # iids
    ("post('q', 'n=>1', iid => 'pair.1@x')", "MB009"),
    ("post_q('n=>1', iid => 'q.999@' || (select name from mbus.node))", "MB009"),
    ("post_q('n=>1', iid => 'nonsense')", "MB009"),
    ("take('q.1@elsewhere')", "MB009"),
    ("take_q('pair.1@x')", "MB009"),
    ("take_from_q_by_default('nonsense')", "MB009"),
    ("reject('q', 'default', null)", "MB009"),
    ("redrive('q', iid => 'nonsense')", "MB009"),
    ("ack('q.nonsense', 1)", "MB009"),
    ("post_q('n=>1', iid => {iid})", "MB010"),
    ("post('q', 'n=>1', iid => {iid})", "MB010"),
    # payloads
    ("post('q', '{}'::jsonb)", "MB011"),
    ("post('q', '\\x00'::bytea)", "MB011"),
    ("post('q', 'no hstore at all')", "MB011"),
    ("post('json', 'n=>1'::hstore)", "MB011"),
    ("post('json', 'no json')", "MB011"),
    ("create_queue('c', payload => 'integer')", "MB011"),
    ("create_queue('c', payload => null)", "MB011"),
    ("consume('json')", "MB019"),
    # arguments
    ("create_queue('c', 0)", "MB012"),
    ("create_queue('c', null)", "MB012"),
    ("create_queue('c', -8)", "MB012"),
    ("consumen_q_by_default(-1)", "MB012"),
    ("consumen_q_by_default(null)", "MB012"),
    ("lease_q_by_default(-1)", "MB012"),
    ("lease_q_by_default(null)", "MB012"),
    ("lease_q_by_default(1, '-1 second')", "MB012"),
    ("lease_q_by_default(1, '0')", "MB012"),
    ("lease_q_by_default(1, null)", "MB012"),
    ("extend({leased}, {token}, '-1 second')", "MB012"),
    ("extend({leased}, {token}, null)", "MB012"),
    ("nack({leased}, {token}, '-1 second')", "MB012"),
    ("reject('q', 'default', {iid}, '-1 second')", "MB012"),
    ("post_q('n=>1', delayed_until => '2100-01-02', expires => '2100-01-01')", "MB012"),
    (
        "postn_q(array['n=>1']::hstore[], delayed_until => '2100-01-02', expires => '2100-01-01')",
        "MB012",
    ),
    ("post_q('n=>1', 'priority=>urgent')", "MB012"),
    ("post_q('n=>1', 'group=>a, priority=>high')", "MB012"),
    ("post_q('n=>1', 'dedup_key=>a, dedup_window=>soon')", "MB012"),
    ("post_q('n=>1', 'seenby=>nonsense')", "MB012"),
    ("postn_q(array['n=>1', 'n=>2', 'n=>3']::hstore[], array['a=>1', 'a=>2']::hstore[])", "MB012"),
    ("postn_q(array['n=>1']::hstore[], properties => array['a=>1', 'a=>2']::hstore[])", "MB012"),
    ("postn_q(array['n=>1', 'n=>2']::hstore[], array['', 'priority=>urgent']::hstore[])", "MB012"),
    ("alter_consumer('q', 'default', max_attempts => 0)", "MB012"),
    ("alter_consumer('q', 'default', backoff => '-1 second')", "MB012"),
    ("alter_consumer('q', 'default', backoff_max => '-1 second')", "MB012"),
    ("create_view('q', sname => 'nowhere')", "MB012"),
    # leases
    ("ack({leased}, 999999)", "MB015"),
    ("ack({leased}, null)", "MB015"),
    ("nack({leased}, 999999)", "MB015"),
    ("extend({leased}, 999999)", "MB015"),
]

# Everything that a refused call could have left behind: catalogue, roles and, below, rows.
CATALOGUE = """
    select 'relation', c.oid::regclass::text, c.relkind::text from pg_class c
    where c.relnamespace = 'mbus'::regnamespace
    union all
    select 'function', p.oid::regprocedure::text, md5(p.prosrc) from pg_proc p
    where p.pronamespace = 'mbus'::regnamespace
    union all
    select 'role', r.rolname, null from pg_roles r
    where starts_with(r.rolname, 'mbus_' || current_database())
    order by 1, 2"""


@pytest.fixture
def furnished(bus: Connection) -> dict[str, object]:
    """Give the values that the cases name, of a queue with something in each place."""
    bus.execute("select mbus.create_queue('pair_by_one')")
    bus.execute("select mbus.create_consumer('pair_by_one', 'two')")
    bus.execute("select mbus.create_queue('pair')")
    bus.execute("select mbus.create_queue('json', payload => 'jsonb')")
    post(bus, 1)
    ((_, leased, token, _),) = lease(bus)
    iid = post(bus, 2)
    post(bus, 3, delayed_until="2100-01-01")
    return {"leased": f"'{leased}'", "token": token, "iid": f"'{iid}'"}


def fingerprint(connection: Connection) -> list[tuple[object, ...]]:
    catalogue = rows(connection, CATALOGUE)
    tables = [name for kind, name, relkind in catalogue if kind == "relation" and relkind == "r"]
    counts = " union all ".join(f"select '{name}', count(*) from {name}" for name in tables)
    return catalogue + sorted(rows(connection, counts))


def fill(call: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        call = call.replace(f"{{{name}}}", str(value))
    return call


@pytest.mark.parametrize("half", [0, 1])
def test_bad_input_is_refused_and_changes_nothing(
    bus: Connection, furnished: dict[str, object], half: int
) -> None:
    before = fingerprint(bus)
    wrong = []
    for call, code in CASES[half::2]:
        try:
            with refused(bus, code):
                bus.execute(f"select mbus.{fill(call, furnished)}".encode())
        except (AssertionError, pytest.fail.Exception) as failure:
            wrong.append((call, code, str(failure)[:200]))
    assert wrong == []
    assert fingerprint(bus) == before


def test_a_queue_with_roles_may_have_a_name_as_long_as_they_allow(connection: Connection) -> None:
    role = len(f"mbus_{connection.info.dbname}_consume__by_default")
    longest = "q" * (63 - role)
    closed = "select mbus.create_queue(%s, is_roles_security_model => true)"
    connection.execute(closed, (longest,))
    connection.execute("select mbus.post(%s, 'n=>1')", (longest,))
    assert one(connection, "select data->'n' from mbus.consume(%s)", longest) == "1"
    with refused(connection, "MB006"):
        connection.execute(closed, (longest + "q",))


def test_a_plain_queue_goes_without_roles_that_would_be_too_long(connection: Connection) -> None:
    # So that a database with a long name can have queues at all.
    role = len(f"mbus_{connection.info.dbname}_consume__by_default")
    queue = "q" * (64 - role)
    connection.execute("select mbus.create_queue(%s)", (queue,))
    connection.execute("select mbus.post(%s, 'n=>1')", (queue,))
    assert one(connection, "select data->'n' from mbus.consume(%s)", queue) == "1"
    with refused(connection, "MB006"):
        connection.execute("select mbus.alter_queue(%s, true)", (queue,))
    connection.execute("select mbus.drop_queue(%s)", (queue,))


def test_a_queue_that_needs_roles_is_refused_where_none_can_be_made(bus: Connection) -> None:
    bus.execute(f"create role plain_{bus.info.dbname}".encode())
    bus.execute(f"grant create, usage on schema mbus to plain_{bus.info.dbname}".encode())
    bus.execute(f"set local role plain_{bus.info.dbname}".encode())
    with refused(bus, "42501"):
        bus.execute("select mbus.create_queue('x', is_roles_security_model => true)")
    bus.execute("reset role")
    owner = rows(bus, "select nspowner::regrole::text from pg_namespace where nspname = 'mbus'")
    bus.execute(f"alter role {owner[0][0]} nocreaterole".encode())
    with refused(bus, "MB013"):
        bus.execute("select mbus.create_queue('x', is_roles_security_model => true)")
    bus.execute("select mbus.create_queue('x')")
    assert rows(bus, "select rolname from pg_roles where rolname like '%\\_post\\_x'") == []
