"""Every function that a user with one post role may call, with hostile values.

Whatever is given, another queue stays as it is, errors have a documented code, and the messages of
the user's own queue can be read by its consumers.  POSTROAD_STRESS makes many more calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from psycopg.types.json import Jsonb

from postroad.bus import Message, Worker
from postroad.bus.errors import BusError
from postroad.testing import wait_until
from tests.fixtures.postgres import Connect
from tests.sql.calls import one, rows
from tests.sql.test_security import Login, login, owned

pytestmark = pytest.mark.both_versions

__all__ = ["login", "owned"]

CALLS = 4000 if os.environ.get("POSTROAD_STRESS") else 250

# Beside those of the bus: no right, cancelled by the time limit of this test, an argument that
# PostgreSQL itself refuses.
EXPECTED = {"42501", "57014", "22023"}

IIDS = ["mine.1@NODE", "mine.2@NODE", "closed.1@NODE", "open.1@NODE", "mine.99999@NODE", "x.1@y"]
TEXTS = st.one_of(
    st.just("mine"),
    st.sampled_from(
        ["mine", "closed", "open", "nowhere", "default", "second", "temp.0123456789abcdef", "temp."]
    ),
    st.sampled_from(IIDS),
    st.sampled_from(
        ["", "{", "{NULL}", "\\x", "\\xzz", "[" * 3000, "a" * 10000, "'; drop table mbus.dmq; --"]
    ),
    st.sampled_from(
        ["true", "1/0 = 1", "t.nothing", "current_user", "select 1", "select 1; select 1/0", "$1"]
    ),
    st.sampled_from(
        ["qt_model", "queue", "hstore", "jsonb", "00-zz-00", "-infinity", "\U0001f980"]
    ),
    st.sampled_from(["* * * * *", "0 3 29 2 *", "1 second", "Europe/Berlin", "skip", "all"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
)
KEYS = st.sampled_from(
    [
        *("priority", "group", "dedup_key", "dedup_window", "consume_after", "consume_after_lost"),
        *("reply_to", "reply_by", "correlation", "seenby", "source_db", "enqueue_time", "attempts"),
        *("saga", "step", "bung", "traceparent", "replayed", "schedule", "ce_id"),
        *("unique_key", "unique_until", "debounce", "max_debounce"),
    ]
)
PAIRS = st.sampled_from(
    [
        {"priority": "high"},
        {"group": "a"},
        {"dedup_key": "k", "dedup_window": "170000000 years"},
        {"dedup_key": "k", "dedup_window": "-1 second"},
        {"consume_after": "{mine.1@NODE,closed.1@NODE}"},
        {"consume_after": "{{mine.1@NODE},{NULL}}"},
        {"reply_to": "closed"},
        {"reply_to": "mine", "correlation": "x", "reply_by": "never"},
        {"seenby": "{a,{b}}"},
        {"unique_key": "k"},
        {"unique_key": "k", "unique_until": "taken"},
        {"unique_key": "k", "debounce": "1 second", "max_debounce": "-1 second"},
        {"unique_key": "k", "debounce": "170000000 years"},
    ]
)
HSTORES = PAIRS | st.dictionaries(KEYS | TEXTS, st.none() | TEXTS, max_size=3)
INTEGERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 100, 2**31 - 1])
BIGINTS = INTEGERS | st.sampled_from([-(2**63), 2**63 - 1])
TIMES = st.sampled_from(
    [
        "infinity",
        "-infinity",
        "294276-12-31",
        "4713-01-01 BC",
        "9999-12-31",
        "2000-01-01",
        "2100-01-01",
    ]
)
INTERVALS = st.sampled_from(
    ["0", "-1 second", "1 microsecond", "170000000 years", "-170000000 years", "1 second"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
STEPS = st.lists(
    st.fixed_dictionaries(
        {"name": TEXTS, "do": TEXTS},
        optional={"undo": TEXTS, "consumer": TEXTS, "after": JSON, "data": JSON},
    ),
    max_size=3,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "hstore": HSTORES,
    "jsonb": JSON | STEPS,
    "bytea": st.binary(max_size=20),
    "boolean": st.booleans(),
    "integer": INTEGERS,
    "bigint": BIGINTS,
    "interval": INTERVALS,
    "timestamp with time zone": TIMES,
    "regtype": st.sampled_from(["hstore", "jsonb", "text", "bytea", "integer", "mbus.queue"]),
}


def value_of(kind: str) -> st.SearchStrategy[Any]:
    """Return hostile values of a type, arrays included; of rows there is only null."""
    if kind.endswith("[]"):
        inner = VALUES.get(kind.removesuffix("[]"))
        return st.none() if inner is None else st.none() | st.lists(st.none() | inner, max_size=4)
    found = VALUES.get(kind)
    return st.none() if found is None else st.one_of(*[found] * 7, st.none())


@pytest.fixture
def victim(owned: str, connect: Connect) -> Connection:
    """Give the owner's session beside the user's queue `mine` and others that are in use."""
    owner = connect(owned, autocommit=True)
    # Otherwise the first maintenance repairs the copied database and renames its messages.
    owner.execute("select mbus.after_restore(is_copy => true)")
    owner.execute("select mbus.create_queue('mine', is_roles_security_model => true)")
    owner.execute("select mbus.create_consumer('mine', 'second')")
    for queue in ("open", "closed"):
        owner.execute(
            f"select mbus.post_{queue}(hstore('n', n::text)) from generate_series(1, 3) n".encode()
        )
        owner.execute(f"select mbus.post_{queue}('n=>4', delayed_until => '2100-01-01')".encode())
        owner.execute(f"select * from mbus.lease_{queue}_by_default(1, '1 day')".encode())
    return owner


@pytest.fixture
def user(victim: Connection, login: Login) -> Connection:
    session = login("post_mine")
    session.execute("set statement_timeout = '1s'")
    return session


def others(owner: Connection) -> list[tuple[Any, ...]]:
    """Return everything that matters of the queues on which the user has no right."""
    return rows(
        owner,
        "select q::text, c::text, (select array_agg(s.ready + s.delayed + s.blocked)"
        " from mbus.status s where s.queue = q.name),"
        " (select array_agg(l::text) from mbus.browse(q.name, c.name, 'leased') l),"
        " (select count(*) from mbus.dmq d where d.queue_id = q.id),"
        " (select count(*) from mbus.wait w where w.queue_id = q.id),"
        " (select count(*) from mbus.reserved r where r.queue_id = q.id)"
        " from mbus.queue q join mbus.consumer c on c.queue_id = q.id"
        " where q.name in ('open', 'closed') order by c.id",
    )


def documented() -> set[str]:
    """Return the codes of all errors of the bus."""

    def leaves(kind: type[BusError]) -> Iterator[type[BusError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from leaves(child)

    return {code for kind in leaves(BusError) if (code := getattr(kind, "code", None))}


def test_hostile_calls_of_a_user_who_may_post_harm_nobody(
    owned: str, victim: Connection, user: Connection
) -> None:
    functions = rows(
        user,
        "select p.proname, array(select format_type(t, null) from unnest(p.proargtypes) t),"
        "   p.pronargs - p.pronargdefaults"
        " from pg_proc p where p.pronamespace = 'mbus'::regnamespace"
        "   and has_function_privilege(p.oid, 'execute') and p.prokind = 'f'"
        "   and p.prorettype <> 'trigger'::regtype order by p.oid::regprocedure::text",
    )
    assert len(functions) > 40
    # Its own functions more often: most other calls fail for want of a right.
    functions += [
        entry for entry in functions if entry[0] in ("post", "post_mine", "postn_mine")
    ] * 4
    node = one(victim, "select name from mbus.node")
    codes = documented() | EXPECTED
    before = others(victim)

    @settings(
        max_examples=CALLS,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def call(data: st.DataObject) -> None:
        name, kinds, required = data.draw(st.sampled_from(functions))
        kinds = kinds[: data.draw(st.integers(required, len(kinds)))]
        payload = data.draw(st.sampled_from(["hstore", "jsonb", "text", "bytea"]))
        kinds = [payload if kind.startswith("any") else kind for kind in kinds]
        values = [encode(data.draw(value_of(kind)), kind, node) for kind in kinds]
        arguments = ", ".join(f"%s::{kind}" for kind in kinds)
        failure: psycopg.Error | None = None
        try:
            user.execute(f'select * from mbus."{name}"({arguments})'.encode(), values)
        except psycopg.Error as error:
            failure = error
        assert failure is None or failure.sqlstate in codes, (name, values, failure)
        assert others(victim) == before, (name, values)

    call()
    assert one(victim, "select count(*) from mbus.queue") == 3
    assert one(victim, "select mbus.positions('{mine}')") > [10]
    victim.execute("select mbus.maintain()")
    last = one(victim, "select mbus.post_mine('n=>last')")
    assert_workers_reach(owned, last)
    victim.execute("select * from mbus.dead").fetchall()


def assert_workers_reach(dsn: str, last: str) -> None:
    """Whatever was posted before, workers of both modes go on to the last message."""
    seen: set[str] = set()
    worker = Worker(dsn)

    @worker.handler("mine")
    def in_transaction(message: Message, connection: Connection) -> None:
        if message.iid == last:
            seen.add("transaction")

    @worker.handler("mine", "second", mode="lease")
    def by_lease(message: Message) -> None:
        if message.iid == last:
            seen.add("lease")

    with worker:
        wait_until(
            lambda: seen == {"transaction", "lease"} or not worker.is_running,
            what="workers reach the last message",
            timeout_seconds=50,
        )
        assert worker.is_running


def encode(value: Any, kind: str, node: str) -> Any:
    """Return a value as psycopg sends it; a text for what has no type in Python."""
    if value is None:
        return None
    if kind.endswith("[]"):
        return [encode(each, kind.removesuffix("[]"), node) for each in value]
    value = name_node(value, node)
    if kind == "jsonb":
        return Jsonb(value)
    return hstore_text(value) if kind == "hstore" else value


def name_node(value: Any, node: str) -> Any:
    if isinstance(value, str):
        return value.replace("NODE", node)
    if isinstance(value, list):
        return [name_node(each, node) for each in value]
    if isinstance(value, dict):
        return {name_node(key, node): name_node(each, node) for key, each in value.items()}
    return value


def hstore_text(pairs: dict[str, str | None]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return ", ".join(
        f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}"
        for key, value in pairs.items()
    )
