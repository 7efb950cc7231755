"""Who may do what with temporary queues, and whose rights an expression of the caller's has."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import column, one, refused, rows
from tests.sql.test_security import Login, login, owned

pytestmark = pytest.mark.both_versions

__all__ = ["login", "owned"]

# A function that tells whose rights it has.
WHO = "create function public.who() returns text language sql as $$ select current_user::text $$"


@pytest.fixture
def owner(owned: str, connect: Connect) -> Connection:
    return connect(owned, autocommit=True)


def test_a_user_asks_answers_and_has_temporary_queues(login: Login) -> None:
    user = login("user")
    name = one(user, "select mbus.create_temporary_queue()")
    user.execute("select mbus.post(%s, 'n=>1')", (name,))
    assert column(user, "select data->'n' from mbus.consume(%s)", name) == ["1"]
    iid = one(user, "select mbus.request('open', 'n=>1')")
    user.execute("select mbus.reply(headers, data) from mbus.consume('open')")
    assert column(user, "select correlation from mbus.replies()") == [iid]
    assert one(user, "select mbus.clear_tempq()") == 0
    user.execute("select mbus.request('open', 'n=>2')")
    assert column(user, "select data->'n' from mbus.dyn_consume('open')") == ["2"]


def test_a_closed_queue_stays_closed(login: Login) -> None:
    user = login("user")
    for call in (
        "mbus.request('closed', 'n=>1')",
        "mbus.dyn_consume('closed')",
        "mbus.create_temporary_consumer('closed')",
        "mbus._show('closed', 'default', 9)",
        "mbus._claim('closed', 'default', 'closed.1@x', null)",
        "mbus._claim_ready('closed', 'default', 9)",
    ):
        with refused(user, "MB013"):
            user.execute(f"select * from {call}".encode())


def test_a_stranger_gets_nowhere(login: Login) -> None:
    stranger = login()
    for call in ("create_temporary_queue()", "reply('reply_to=>temp.x', 'n=>1')", "replies()"):
        with refused(stranger, "42501"):
            stranger.execute(f"select * from mbus.{call}".encode())


def test_triggers_and_selectors_that_last_are_an_admins(login: Login) -> None:
    user, admin = login("user"), login("admin")
    for call in ("create_trigger('open', 'closed')", "create_run_function('open')"):
        with refused(user, "42501"):
            user.execute(f"select mbus.{call}".encode())
        admin.execute(f"select mbus.{call}".encode())
    # It runs in the producer's transaction as the owner of the bus.
    with refused(user, "MB013"):
        user.execute("select mbus.create_temporary_consumer('open', 'true')")
    admin.execute("select mbus.create_temporary_consumer('open', 'true')")
    name = one(user, "select mbus.create_temporary_consumer('open')")
    user.execute("select mbus.post('open', 'n=>1')")
    assert column(user, "select data->'n' from mbus.consume(%s)", name) == ["1"]
    # The copy went into a queue that the producer may not post to.
    assert column(admin, "select data->'n' from mbus.consume('closed')") == ["1"]


def test_an_ad_hoc_selector_has_the_callers_rights(
    owner: Connection,
    login: Login,
) -> None:
    owner.execute(WHO)
    owner.execute("create table public.secret (n text)")
    user = login("user")
    me = one(user, "select current_user::text")
    user.execute("select mbus.post('open', 'n=>1')")
    with refused(user, "MB008"):
        rows(user, "select * from mbus.dyn_consume('open', 'exists (select from public.secret)')")
    got = rows(user, "select * from mbus.dyn_consume('open', %s)", f"public.who() = '{me}'")
    assert len(got) == 1


def test_a_statement_has_the_callers_rights_and_search_path(
    owner: Connection,
    login: Login,
) -> None:
    owner.execute(WHO)
    owner.execute("create table public.secret (n text)")
    owner.execute("create table public.seen (n text)")
    owner.execute("grant insert on public.seen to public")
    owner.execute("select mbus.create_run_function('open')")
    user = login("user")
    me = one(user, "select current_user::text")
    user.execute("select mbus.post('open', 'n=>1')")
    with refused(user, "MB012"):
        user.execute("select mbus.run_on_open('insert into nothing select 1')")
    assert one(user, "select mbus.run_on_open('insert into secret select 1')") == 0
    assert column(owner, "select error from mbus.dead") == ["permission denied for table secret"]
    owner.execute("select mbus.redrive('open')")
    assert one(user, "select mbus.run_on_open('insert into seen select who()')") == 1
    assert column(owner, "select n from public.seen") == [me]


def test_nobody_reads_the_tables_behind(login: Login) -> None:
    user = login("user")
    for table in ("tempq_0", "temporary_queue", "follower", "followers"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            user.execute(f"select * from mbus.{table}".encode())


@pytest.fixture
def narrow(owner: Connection) -> str:
    """Let consumer `default` of the closed queue have a selector."""
    owner.execute("select mbus.drop_consumer('closed', 'default')")
    owner.execute("select mbus.create_consumer('closed', 'default', $$(t.data->'n')::int < 9$$)")
    return "consume_closed_by_default"


@pytest.mark.parametrize("ends", ["revoked", "dropped"])
def test_a_temporary_consumer_ends_with_the_right_that_it_was_made_with(
    owner: Connection, login: Login, ends: str
) -> None:
    reader = login("consume_closed_by_default", "post_open")
    name = one(reader, "select mbus.create_temporary_consumer('closed')")
    owner.execute("select mbus.post('closed', 'n=>1')")
    assert column(reader, "select data->'n' from mbus.consume(%s)", name) == ["1"]
    owner.execute("select mbus.post('closed', 'n=>2')")
    if ends == "revoked":
        database = owner.info.dbname
        user = one(reader, "select session_user::text")
        owner.execute(f'revoke "mbus_{database}_consume_closed_by_default" from "{user}"'.encode())
    else:
        owner.execute("select mbus.drop_consumer('closed', 'default')")
    owner.execute("select mbus.post('closed', 'n=>3')")
    for call in ("consume(%s)", "consume_temporary(%s, 10)"):
        with refused(reader, "MB013"):
            reader.execute(f"select * from mbus.{call}".encode(), (name,))


def test_a_closed_queue_closes_to_open_temporary_consumers(owner: Connection, login: Login) -> None:
    user = login("user")
    name = one(user, "select mbus.create_temporary_consumer('open')")
    owner.execute("select mbus.post('open', 'n=>1')")
    owner.execute("select mbus.alter_queue('open', is_roles_security_model => true)")
    with refused(user, "MB013"):
        user.execute("select * from mbus.consume(%s)", (name,))
    owner.execute("select mbus.alter_queue('open', is_roles_security_model => false)")
    assert column(user, "select data->'n' from mbus.consume(%s)", name) == ["1"]


def test_a_temporary_consumer_gets_no_more_than_the_consumer_that_it_copies(
    owner: Connection, login: Login, narrow: str
) -> None:
    reader = login(narrow)
    name = one(reader, "select mbus.create_temporary_consumer('closed')")
    # A selector that raises keeps the copy back: nobody knows whether it may be seen.
    for number in ("1", "10", "secret"):
        owner.execute("select mbus.post('closed', hstore('n', %s))", (number,))
    got = column(reader, "select data->'n' from mbus.consume_temporary(%s, 10)", name)
    assert got == ["1"]
