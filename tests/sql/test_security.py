"""Who may do what: the plain model, the roles of the seed, and nothing for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import Connection, sql

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, lease, one, post, refused, rows, take

pytestmark = pytest.mark.both_versions

Login = Callable[..., Connection]


@pytest.fixture
def owned(owned_database: str) -> str:
    """Give an open queue and a closed one in a database whose roles are its own."""
    with psycopg.connect(owned_database) as connection:
        connection.execute("select mbus.create_queue('open')")
        connection.execute("select mbus.create_queue('closed', is_roles_security_model => true)")
        connection.execute("select mbus.create_consumer('closed', 'second')")
    return owned_database


@pytest.fixture
def login(owned: str, connect: Connect) -> Iterator[Login]:
    """Give a function that opens a session of a new user with the named roles of the bus."""
    owner = connect(owned, autocommit=True)
    database = owner.info.dbname
    users: list[str] = []

    def open_session(*suffixes: str) -> Connection:
        user = f"u{len(users)}_{database}"
        owner.execute(sql.SQL("create role {} login").format(sql.Identifier(user)))
        users.append(user)
        for suffix in suffixes:
            role = sql.Identifier(f"mbus_{database}_{suffix}")
            owner.execute(sql.SQL("grant {} to {}").format(role, sql.Identifier(user)))
        session = connect(owned, autocommit=True)
        session.execute(sql.SQL("set session authorization {}").format(sql.Identifier(user)))
        return session

    yield open_session
    for user in users:
        owner.execute(sql.SQL("drop owned by {}").format(sql.Identifier(user)))
        owner.execute(sql.SQL("drop role {}").format(sql.Identifier(user)))


def test_no_function_is_for_everybody(owned: str, connect: Connect) -> None:
    query = """
        select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'mbus'::regnamespace
          and has_function_privilege('public', p.oid, 'execute') order by 1"""
    assert column(connect(owned), query) == []


def test_what_is_granted_is_not_granted_again(owned: str, connect: Connect) -> None:
    # A grant replaces the function's row; an upgrade generates the functions of all queues.
    query = "select oid, xmin::text from pg_proc where proname ~ '_open($|_by_)' order by oid"
    owner = connect(owned, autocommit=True)
    before = rows(owner, query)
    owner.execute("select mbus._grant(q) from mbus.queue q where q.name = 'open'")
    assert rows(owner, query) == before


def test_every_definer_function_has_a_pinned_search_path(owned: str, connect: Connect) -> None:
    connection = connect(owned)
    connection.execute("select mbus.create_view('open')")
    post(connection, 1, "group=>a", queue="open")
    definers = rows(
        connection,
        "select p.oid::regprocedure::text, p.proconfig from pg_proc p"
        " where p.pronamespace = 'mbus'::regnamespace and p.prosecdef",
    )
    assert len(definers) > 20
    for function, settings in definers:
        paths = [entry for entry in settings or [] if entry.startswith("search_path=")]
        assert paths, function
        assert paths[0].startswith("search_path=pg_catalog, mbus, "), function
        assert paths[0].endswith("pg_temp"), function


def test_no_table_or_sequence_is_for_everybody(owned: str, connect: Connect) -> None:
    query = """
        select c.relname from pg_class c, aclexplode(c.relacl) a
        where c.relnamespace = 'mbus'::regnamespace and a.grantee = 0"""
    assert column(connect(owned), query) == []


def test_a_stranger_may_do_nothing(login: Login) -> None:
    stranger = login()
    for call in ("post('open', 'n=>1')", "consume('open')", "post_open('n=>1')", "maintain()"):
        with refused(stranger, "42501"):
            stranger.execute(f"select mbus.{call}".encode())


def test_a_user_may_use_plain_queues_and_no_others(login: Login) -> None:
    user = login("user")
    iid = one(user, "select mbus.post('open', 'n=>1')")
    post(user, 2, queue="open")
    assert one(user, "select data->'n' from mbus.take(%s)", iid) == "1"
    ((_, iid, token, _),) = lease(user, whose="open_by_default")
    assert one(user, "select mbus.nack(%s, %s, '0')", iid, token) == "ready"
    assert take(user, whose="open_by_default") == ["2"]
    user.execute("select mbus.maintain()")
    for call in ("post('closed', 'n=>1')", "consume('closed')", "consume('closed', 'second')"):
        with refused(user, "MB013"):
            user.execute(f"select mbus.{call}".encode())
    for call in ("post_closed('n=>1')", "consume_closed_by_default()", "lease_closed_by_second()"):
        with refused(user, "42501"):
            user.execute(f"select mbus.{call}".encode())
    for call in ("create_queue('x')", "drop_queue('open')", "redrive('open')"):
        with refused(user, "42501"):
            user.execute(f"select mbus.{call}".encode())


def test_a_user_cannot_touch_the_tables(login: Login) -> None:
    user = login("user", "post_closed", "consume_closed_by_default")
    for query in (
        "select * from mbus.queue",
        'select * from mbus."qt$open$0"',
        "delete from mbus.leased",
        "select * from mbus.dead",
        "select nextval('mbus.\"qs$open$position\"')",
        "select mbus._queue('open'::text)",
    ):
        with refused(user, "42501"):
            user.execute(query.encode())


def test_measures_are_those_of_consumers_that_the_user_may_consume_as(login: Login) -> None:
    worker = login("consume_closed_by_default")
    call = "select mbus.measure('closed', %s, '{wait}', array_fill(1, '{23}'), '{1}')"
    worker.execute(call, ("default",))
    with refused(worker, "MB013"):
        worker.execute(call, ("second",))
    assert rows(login("user"), "select consumer from mbus.handling") == [("default",)]


def test_the_post_role_may_post_and_only_that(login: Login) -> None:
    poster = login("post_closed")
    iid = one(poster, "select mbus.get_iid('closed')")
    assert one(poster, "select mbus.post('closed', 'n=>1', iid => %s)", iid) == iid
    post(poster, 2, queue="closed")
    poster.execute("select mbus.postn_closed(array['n=>3']::hstore[])")
    with refused(poster, "MB013"):
        poster.execute("select mbus.consume('closed')")
    with refused(poster, "42501"):
        poster.execute("select mbus.consume_closed_by_default()")
    with refused(poster, "MB013"):
        poster.execute("select mbus.post('open', 'n=>1')")


def test_the_consume_role_may_consume_as_one_consumer(login: Login) -> None:
    post(login("post_closed"), 1, queue="closed")
    reader = login("consume_closed_by_second")
    with refused(reader, "MB013"):
        reader.execute("select mbus.consume('closed')")
    with refused(reader, "MB013"):
        reader.execute("select mbus.post('closed', 'n=>1')")
    ((_, iid, token, _),) = lease(reader, whose="closed_by_second")
    assert one(reader, "select mbus.extend(%s, %s) is not null", iid, token)
    assert one(reader, "select mbus.nack(%s, %s, '0')", iid, token) == "ready"
    assert one(reader, "select mbus.reject('closed', 'second', %s, '0')", iid) == "ready"
    with refused(reader, "MB013"):
        reader.execute("select mbus.reject('closed', 'default', %s)", (iid,))
    assert column(reader, "select data->'n' from mbus.consume('closed', 'second')") == ["1"]


def test_the_role_of_the_only_consumer_may_take_by_iid(login: Login, owned: str) -> None:
    with psycopg.connect(owned) as owner:
        owner.execute("select mbus.create_queue('single', is_roles_security_model => true)")
    poster, reader = login("post_single"), login("consume_single_by_default")
    iid = post(poster, 1, queue="single")
    assert one(reader, "select mbus.peek_single(%s)", iid)
    assert one(reader, "select data->'n' from mbus.take(%s)", iid) == "1"
    iid = post(poster, 2, queue="single")
    with psycopg.connect(owned) as owner:
        owner.execute("select mbus.create_consumer('single', 'second')")
    # It would be taken from the other consumer as well.
    with refused(reader, "MB013"):
        reader.execute("select mbus.take(%s)", (iid,))
    assert one(reader, "select mbus.peek_single(%s)", iid)
    assert one(reader, "select data->'n' from mbus.take_from_single_by_default(%s)", iid) == "2"


def test_a_dropped_consumer_takes_its_role_along(owned: str) -> None:
    with psycopg.connect(owned) as owner:
        owner.execute("select mbus.create_run_function('closed')")
        for name in ("second", "default"):
            owner.execute("select mbus.create_consumer('closed', 'next_to_' || %s)", (name,))
            owner.execute("select mbus.drop_consumer('closed', %s)", (name,))
        roles = column(
            owner,
            "select split_part(rolname, '_by_', 2) from pg_roles"
            " where rolname ~ ('^mbus_' || current_database() || '_consume_closed') order by 1",
        )
    assert sorted(roles) == ["next_to_default", "next_to_second"]


def test_a_lease_cannot_be_answered_by_somebody_else(login: Login) -> None:
    post(login("post_closed"), 1, queue="closed")
    holder, other = login("consume_closed_by_second"), login("consume_closed_by_default", "user")
    ((_, iid, token, _),) = lease(holder, whose="closed_by_second")
    for call in ("ack(%s, %s)", "nack(%s, %s)", "extend(%s, %s)"):
        with refused(other, "MB013"):
            other.execute(f"select mbus.{call}".encode(), (iid, token))
    for call in ("ackn(array[%s], array[%s::bigint])", "extendn(array[%s], array[%s::bigint])"):
        with refused(other, "MB013"):
            other.execute(f"select mbus.{call}".encode(), (iid, token))
    holder.execute("select mbus.ack(%s, %s)", (iid, token))


def test_an_admin_may_do_everything_and_see_everything(login: Login) -> None:
    admin = login("admin")
    admin.execute("select mbus.create_queue('q', is_roles_security_model => true)")
    admin.execute("select mbus.create_consumer('q', 'second')")
    iid = post(admin, 1)
    post(admin, 2)
    ((_, leased, token, _),) = lease(admin)
    admin.execute("select mbus.nack(%s, %s, park => true)", (leased, token))
    assert rows(
        admin, "select queue, dmq from mbus.status where queue = 'q' order by consumer"
    ) == [
        ("q", 1),
        ("q", 0),
    ]
    assert one(admin, "select iid from mbus.dead") == iid
    assert len(rows(admin, "select * from mbus.queues")) == 3
    assert len(rows(admin, "select * from mbus.consumers")) == 5
    assert one(admin, "select mbus.redrive('q')") == 1
    assert one(admin, "select data->'n' from mbus.take(%s)", iid) == "1"
    assert one(admin, "select mbus.peek_q()")
    admin.execute("select mbus.clear_queue_q()")
    admin.execute("select mbus.maintain()")
    admin.execute("select mbus.drop_queue('q')")


def test_a_user_may_look_at_the_figures(login: Login) -> None:
    user = login("user")
    assert len(rows(user, "select * from mbus.queues")) == 2
    assert len(rows(user, "select * from mbus.consumers")) == 3
    assert len(rows(user, "select * from mbus.status")) == 3


def test_a_queue_that_becomes_one_with_roles_is_closed_to_users(
    owned: str, connect: Connect, login: Login
) -> None:
    owner, user = connect(owned, autocommit=True), login("user")
    owner.execute("select mbus.create_queue('open', is_roles_security_model => true)")
    with refused(user, "MB013"):
        user.execute("select mbus.post('open', 'n=>1')")
    with refused(user, "42501"):
        user.execute("select mbus.consume_open_by_default()")


def test_an_altered_queue_opens_and_closes_to_users(
    owned: str, connect: Connect, login: Login
) -> None:
    owner, user = connect(owned, autocommit=True), login("user")
    with refused(user, "42501"):
        user.execute("select mbus.alter_queue('closed', false)")
    owner.execute("select mbus.alter_queue('closed', false)")
    user.execute("select mbus.post('closed', 'n=>1')")
    owner.execute("select mbus.alter_queue('closed', true)")
    with refused(user, "MB013"):
        user.execute("select mbus.post('closed', 'n=>1')")


def test_objects_of_the_caller_cannot_stand_in_for_those_of_the_bus(
    owned: str, connect: Connect, login: Login
) -> None:
    owner, user = connect(owned, autocommit=True), login("user")
    schema = sql.Identifier(f"s_{owner.info.dbname}")
    owner.execute(
        sql.SQL("create schema {} authorization {}").format(
            schema, sql.Identifier(one(user, "select session_user::text"))
        )
    )
    for statement in (
        "create function {0}.now() returns timestamptz language sql as 'select null::timestamptz'",
        "create table {0}.queue (id integer, name text)",
        "create temporary table queue (id integer, name text)",
        "create temporary table leased (token bigint)",
        "create function {0}.nextval(regclass) returns bigint language sql as 'select -1::bigint'",
        "create function {0}.evil(text, text) returns boolean language plpgsql as"
        " $$ begin raise exception 'hijacked'; end $$",
        "create operator {0}.= (leftarg = text, rightarg = text, function = {0}.evil)",
    ):
        user.execute(sql.SQL(statement).format(schema))
    user.execute(sql.SQL("set search_path = {}, pg_temp, pg_catalog, public").format(schema))
    assert one(user, "select mbus.post('open', 'n=>1'::public.hstore)") is not None
    ((iid, token),) = rows(user, "select iid, token from mbus.lease_open_by_default()")
    user.execute("select mbus.ack(%s, %s)", (iid, token))
    assert rows(user, "select * from mbus.consume('open')") == []


def test_a_right_to_one_queue_is_none_to_another_plain_one(login: Login, owned: str) -> None:
    with psycopg.connect(owned) as owner:
        iid = post(owner, 1, queue="open")
    session = login("post_closed")
    for call in (
        "select mbus.create_temporary_consumer('open')",
        f"select mbus.reject('open', 'default', '{iid}', park => true)",
        "select mbus.get_iid('open')",
    ):
        with refused(session, "MB013"):
            session.execute(call.encode())
    member = login("user")
    assert one(member, "select mbus.get_iid('open')").startswith("open.")
    assert one(member, "select mbus.create_temporary_consumer('open')")


def test_consume_after_needs_a_right_to_each_queue_that_it_names(login: Login, owned: str) -> None:
    with psycopg.connect(owned) as owner:
        iid = post(owner, 1, queue="closed")
        node = iid.partition("@")[2]
        owner.execute("select mbus.create_queue('mine', is_roles_security_model => true)")
    poster = login("post_mine")
    before = one(poster, "select mbus.post('mine', 'n=>1')")
    # An existing iid, one that was never issued and an unknown queue get the same answer.
    for named in (iid, f"closed.999@{node}", f"nowhere.1@{node}"):
        with refused(poster, "MB013"):
            post(poster, 2, f'consume_after=>"{{{before},{named}}}"', queue="mine")
        with refused(poster, "MB013"):
            poster.execute(
                "select mbus.postn_mine(array['n=>2'::hstore], array[hstore('consume_after', %s)])",
                (named,),
            )
    with psycopg.connect(owned) as owner:
        waited = "select has_waiters from mbus.queue where name = 'closed'"
        assert not one(owner, waited)
        assert column(owner, "select number from mbus.blocked") == []
    for role in ("post_closed", "consume_closed_by_second"):
        entitled = login("post_mine", role)
        post(entitled, 3, f'consume_after=>"{iid}"', queue="mine")
    with psycopg.connect(owned) as owner:
        assert one(owner, "select count(*) from mbus.blocked") == 2


def test_answers_to_a_lease_do_not_show_the_iids_of_other_queues(login: Login, owned: str) -> None:
    with psycopg.connect(owned) as owner:
        iid = post(owner, 1, queue="open")
        ((_, iid, token, _),) = lease(owner, whose="open_by_default")
    session = login("post_closed")
    unknown = iid.replace("open.1@", "open.999@")
    for named, number in ((iid, token), (iid, token + 1), (unknown, token)):
        for call in ("ack(%s, %s)", "nack(%s, %s)", "extend(%s, %s)"):
            with refused(session, "MB013"):
                session.execute(f"select mbus.{call}".encode(), (named, number))


@pytest.mark.parametrize(
    ("definition", "last"),
    [
        ("operator public.~~~~ (function = public.mine, rightarg = bigint)", "~~~~ t.id"),
        ("domain public.odd as text check (public.mine(1))", "(t.data->'n')::odd is not null"),
    ],
)
def test_a_selector_cannot_call_functions_of_users(
    login: Login, owned: str, definition: str, last: str
) -> None:
    """They would run with the rights of the owner of the bus, whatever they are declared to be."""
    admin = login("admin")
    with psycopg.connect(owned) as owner:
        owner.execute("grant create on schema public to public")
        owner.execute("create sequence public.ran")
        owner.execute("grant all on sequence public.ran to public")
    for schema in ("public", "pg_temp"):
        admin.execute(
            f"create function {schema}.mine(bigint default 1) returns boolean language plpgsql"
            " immutable as $$begin perform nextval('public.ran'); return true; end$$".encode()
        )
    admin.execute(f"create {definition}".encode())
    for selector in ("public.mine()", "public.mine(t.id)", "pg_temp.mine(t.id)"):
        with refused(admin, "MB008"):
            admin.execute("select mbus.create_consumer('open', 'c', %s)", (selector,))
    for call in (
        "create_consumer('open', 'c', %s)",
        "create_trigger('open', 'closed', %s)",
        "create_temporary_consumer('open', %s)",
    ):
        with refused(admin, "MB008"):
            admin.execute(f"select mbus.{call}".encode(), (last,))
    with psycopg.connect(owned) as owner:
        assert not one(owner, "select is_called from public.ran")


def test_volumes_are_shown_to_those_with_a_right_only(login: Login, owned: str) -> None:
    with psycopg.connect(owned) as owner:
        post(owner, 1, queue="open")
        post(owner, 1, queue="closed")
    probe = "select mbus.positions(array['open', 'closed', 'nowhere'])"
    assert one(login("admin"), probe) == [1, 1, None]
    assert one(login("user"), probe) == [1, None, None]
    for role in ("post_closed", "consume_closed_by_second"):
        assert one(login(role), probe) == [None, 1, None]
    # What maintenance did tells the same.
    with psycopg.connect(owned) as owner:
        post(owner, 2, queue="open", delayed_until="2000-01-01", expires="2000-01-02")
    assert column(login("post_closed"), "select queue from mbus.maintain('open')") == []


def test_a_consumer_whose_id_ends_with_the_same_bits_does_not_hinder_a_holder(
    owned: str, login: Login, connect: Connect
) -> None:
    owner = connect(owned, autocommit=True)
    owner.execute("select mbus.create_queue('bits', is_roles_security_model => true)")
    # A token holds the last eight bits of its consumer's id.
    owner.execute(
        "select setval(pg_get_serial_sequence('mbus.consumer', 'id'), max(id) + 255)"
        " from mbus.consumer"
    )
    owner.execute("select mbus.create_consumer('bits', 'other')")
    owner.execute("select mbus.post_bits('n=>1')")
    user = login("consume_bits_by_default")
    iid, token = rows(user, "select iid, token from mbus.lease_bits_by_default()")[0]
    user.execute("select mbus.extend(%s, %s)", (iid, token))
    user.execute("select mbus.ack(%s, %s)", (iid, token))
    assert one(owner, "select sum(leased) from mbus.status where consumer = 'default'") == 0
