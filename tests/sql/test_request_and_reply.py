"""Request and reply: an answer to the one who asked, if it is still waited for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import Connection

from postroad.testing import wait_until
from tests.fixtures.postgres import Connect
from tests.sql.calls import column, one, refused, rows, shift_clock, take

pytestmark = pytest.mark.both_versions


def ask(connection: Connection, number: object = 1, timeout: str = "5 seconds") -> str:
    return one(
        connection,
        "select mbus.request('q', hstore('n', %s), timeout => %s::interval)",
        str(number),
        timeout,
    )


def work(connection: Connection) -> list[str | None]:
    """Answer everything on q with n + n; return the iids of the answers."""
    return column(
        connection,
        "select mbus.reply(m.headers, hstore('n', (m.data->'n') || (m.data->'n')))"
        " from mbus.consumen_q_by_default(100) m",
    )


def answers(connection: Connection, wait: str = "0") -> list[tuple[str, str]]:
    return rows(
        connection,
        "select correlation, data_hstore->'n' from mbus.replies(100, %s::interval)",
        wait,
    )


def test_the_answer_comes_to_the_one_who_asked(live: str, connect: Connect) -> None:
    first, second, worker = (connect(live, autocommit=True) for _ in range(3))
    asked = [ask(first, 1), ask(second, 2), ask(first, 3)]
    assert None not in work(worker)
    assert answers(first) == [(asked[0], "11"), (asked[2], "33")]
    assert answers(second) == [(asked[1], "22")]
    assert answers(first) == []


def test_the_request_says_where_to_answer_until_when(bus: Connection) -> None:
    iid = ask(bus, timeout="1 minute")
    ((got, correlation, reply_to, is_by, expires),) = rows(
        bus,
        "select iid, headers->'correlation', headers->'reply_to',"
        " (headers->'reply_by')::timestamptz = expires, expires - added < '61 seconds'"
        " from mbus.consume('q')",
    )
    assert got == correlation == iid
    assert reply_to == one(bus, "select mbus.reply_queue()")
    assert (is_by, expires) == (True, True)


@pytest.mark.parametrize("payload", ["hstore", "jsonb", "text", "bytea"])
def test_any_payload_asks_and_answers(connection: Connection, payload: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => %s::regtype)", (payload,))
    text = {"hstore": '"a"=>"1"', "jsonb": '{"a": 1}', "text": "abc", "bytea": "\\x61"}[payload]
    connection.execute(f"select mbus.request('q', %s::{payload})".encode(), (text,))
    connection.execute("select mbus.request('q', %s::text)", (text,))
    connection.execute(
        "select mbus.reply(headers, data, 'a=>b', 'p=>1') from mbus.consumen_q_by_default(9)"
    )
    assert (
        rows(
            connection,
            f"select payload, data_{payload}::text, headers->'a', properties::text"
            " from mbus.replies()",
        )
        == [(payload, text, "b", '"p"=>"1"')] * 2
    )


@pytest.mark.parametrize("kind", ["text", "varchar", "unknown"])
def test_an_answer_may_be_a_text_of_any_type(connection: Connection, kind: str) -> None:
    connection.execute("select mbus.create_queue('q', payload => 'text')")
    connection.execute("select mbus.request('q', 'question')")
    connection.execute(
        f"select mbus.reply(headers, 'answer'::{kind}) from mbus.consume_q_by_default()".encode()
    )
    assert rows(connection, "select payload, data_text from mbus.replies()") == [("text", "answer")]


def test_many_answers_at_once(live: str, connect: Connect) -> None:
    client, other, worker = (connect(live, autocommit=True) for _ in range(3))
    asked = [ask(client, number) for number in range(3)]
    ask(other)
    other.close()
    wait_until(lambda: one(client, "select mbus.clear_tempq()") == 1, what="the session's end")
    sent = one(
        worker,
        "select mbus.replyn_hstore(array_agg(m.headers), array_agg(m.data))"
        " from mbus.consumen_q_by_default(100) m",
    )
    assert [iid is None for iid in sent] == [False, False, False, True]
    assert answers(client) == [(iid, str(number)) for number, iid in enumerate(asked)]
    with refused(worker, "MB012"):
        worker.execute("select mbus.replyn_text(array['reply_to=>temp.x']::hstore[], '{}'::text[])")


def test_bulk_posts_ask_as_well(bus: Connection) -> None:
    name = one(bus, "select mbus.reply_queue()")
    asked = one(
        bus,
        "select mbus.postn_q(array['n=>1', 'n=>2', 'n=>3']::hstore[],"
        " array[%s, null, %s]::hstore[], expires => mbus.now() + '1 minute')",
        f"reply_to=>{name}",
        f"reply_to=>{name}",
    )
    assert column(bus, "select headers->'correlation' from mbus.consumen_q_by_default(9)") == [
        asked[0],
        None,
        asked[2],
    ]


def test_a_late_answer_is_dropped(bus: Connection) -> None:
    ask(bus, timeout="1 second")
    ((headers,),) = rows(bus, "select headers::text from mbus.consume('q')")
    shift_clock(bus, timedelta(seconds=2))
    assert one(bus, "select mbus.reply(%s::hstore, 'n=>1')", headers) is None
    assert one(bus, "select count(*) from mbus.tempq_0") == 0


def test_a_request_that_is_too_old_is_not_delivered(bus: Connection) -> None:
    ask(bus, timeout="1 second")
    shift_clock(bus, timedelta(seconds=2))
    assert take(bus) == []


def test_an_answer_to_somebody_gone_is_dropped(live: str, connect: Connect) -> None:
    client, worker = (connect(live, autocommit=True) for _ in range(2))
    ask(client, timeout="1 hour")
    pid = client.info.backend_pid
    client.close()
    wait_until(lambda: one(worker, "select mbus._is_session_gone(%s)", pid), what="its end")
    assert work(worker) == [None]
    assert one(worker, "select count(*) from mbus.tempq_0") == 0


def test_the_answer_belongs_to_the_answerers_transaction(live: str, connect: Connect) -> None:
    client, worker = connect(live, autocommit=True), connect(live)
    iid = ask(client)
    work(worker)
    assert answers(client) == []
    worker.rollback()
    assert answers(client) == []
    work(worker)
    worker.commit()
    assert answers(client) == [(iid, "11")]


def test_an_answer_may_go_to_a_temporary_queue_of_ones_own(bus: Connection) -> None:
    name = one(bus, "select mbus.create_temporary_queue('jsonb')")
    for _ in range(2):
        bus.execute("select mbus.request('q', 'n=>1'::hstore, reply_to => %s)", (name,))
    first, second = column(bus, "select headers::text from mbus.consumen_q_by_default(2)")
    # It carries JSON; another answer cannot be put there, and nobody gets it.
    assert one(bus, "select mbus.reply(%s::hstore, 'n=>1'::hstore)", first) is None
    assert one(bus, "select mbus.reply(%s::hstore, '[1]'::jsonb)", second) is not None
    assert column(bus, "select data::text from mbus.consume_temporary_jsonb(%s, 9)", name) == [
        "[1]"
    ]


def test_bad_input_is_refused(bus: Connection) -> None:
    for statement, code in [
        ("select mbus.request('none', 'n=>1')", "MB001"),
        ("select mbus.request('q', 'n=>1', timeout => '0')", "MB012"),
        ("select mbus.request('q', 'n=>1', timeout => null)", "MB012"),
        ("select mbus.request('q', 'n=>1', reply_to => 'q')", "MB012"),
        ("select mbus.request('q', '{}'::jsonb)", "MB011"),
        ("select mbus.reply(null, 'n=>1')", "MB012"),
        ("select mbus.reply('a=>b', 'n=>1')", "MB012"),
        ("select mbus.reply('reply_to=>q', 'n=>1')", "MB012"),
        ("select mbus.reply('reply_to=>temp.x,reply_by=>soon', 'n=>1')", "MB012"),
        ("select * from mbus.replies(-1)", "MB012"),
    ]:
        with refused(bus, code):
            bus.execute(statement.encode())
    assert take(bus) == []


def test_a_copied_request_keeps_its_correlation(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('r')")
    bus.execute("select mbus.create_trigger('q', 'r')")
    iid = ask(bus)
    assert one(bus, "select headers->'correlation' from mbus.consume('r')") == iid


def test_waiting_for_an_answer(live: str, connect: Connect) -> None:
    client, worker = (connect(live, autocommit=True) for _ in range(2))
    iid = ask(client)
    work(worker)
    assert answers(client, "10 seconds") == [(iid, "11")]
    assert answers(client, "1 millisecond") == []


def test_a_listener_is_woken_by_the_name_of_the_reply_queue(live: str, connect: Connect) -> None:
    client, worker = (connect(live, autocommit=True) for _ in range(2))
    name = one(client, "select mbus.reply_queue()")
    client.execute("listen mbus")
    worker.execute("select mbus.notify(array[%s, 'temp.unknown'])", (name,))
    notice = next(client.notifies(timeout=45, stop_after=1))
    assert (notice.channel, notice.payload) == ("mbus", name)
