"""Who may start a saga, do its steps and roll it back."""

from __future__ import annotations

import pytest
from psycopg import Connection

from tests.fixtures.postgres import Connect
from tests.sql.calls import one, refused
from tests.sql.test_security import Login, login, owned

pytestmark = pytest.mark.both_versions

__all__ = ["login", "owned"]

OPEN = """'trip', '[{"name": "room", "do": "open"}]'"""
CLOSED = """'trip', '[{"name": "room", "do": "closed"}]'"""


@pytest.fixture
def owner(owned: str, connect: Connect) -> Connection:
    return connect(owned, autocommit=True)


def state(owner: Connection, saga: int) -> str:
    return one(owner, "select state from mbus.saga_status where saga_id = %s", saga)


def test_a_user_has_sagas_over_open_queues(login: Login, owner: Connection) -> None:
    user = login("user")
    saga = one(user, f"select mbus.create_saga({OPEN})")
    user.execute("select mbus.consume('open')")
    assert state(owner, saga) == "completed"
    saga = one(user, f"select mbus.create_saga({OPEN})")
    user.execute("select mbus.abort_saga(iid) from mbus.consume('open')")
    assert state(owner, saga) == "compensated"
    saga = one(user, f"select mbus.create_saga({OPEN})")
    bung = one(owner, "select bung from mbus.saga_status where saga_id = %s", saga)
    assert one(user, "select count(*) from mbus.take(%s)", bung) == 1
    assert state(owner, saga) == "compensated"


def test_a_saga_over_a_closed_queue_is_closed(login: Login, owner: Connection) -> None:
    user = login("user")
    with refused(user, "MB013"):
        user.execute(f"select mbus.create_saga({CLOSED})".encode())
    saga = one(owner, f"select mbus.create_saga({CLOSED})")
    bung, iid = owner.execute("select bung, do_iid from mbus.saga_status").fetchone() or ("", "")
    with refused(user, "MB013"):
        user.execute("select mbus.cancel_saga(%s)", (saga,))
    with refused(user, "MB013"):
        user.execute("select mbus.take(%s)", (bung,))
    with refused(user, "MB013"):
        user.execute("select mbus.abort_saga(%s)", (iid,))
    assert state(owner, saga) == "running"
    handler = login("user", "consume_closed_by_default")
    assert one(handler, "select mbus.cancel_saga(%s)", saga) is True
    assert state(owner, saga) == "compensated"


def test_only_an_administrator_retries(login: Login, owner: Connection) -> None:
    saga = one(owner, f"select mbus.create_saga({OPEN})")
    with refused(login("user"), "42501"):
        login("user").execute("select mbus.retry_saga(%s)", (saga,))
    assert one(login("admin"), "select mbus.retry_saga(%s)", saga) == 0
