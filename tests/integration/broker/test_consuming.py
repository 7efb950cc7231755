"""Delivery, acknowledgement and return, on Kombu connections."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import pytest
from kombu import Connection, Consumer, Message, Producer, Queue
from kombu.asynchronous import Hub
from psycopg import AsyncConnection

from postroad.broker.transport import LOOP_SECONDS
from postroad.postgres.connections import connect_async
from postroad.postgres.errors import DatabaseUnavailable
from postroad.testing import wait_until
from tests.integration.broker.crew import LEASED

# As Celery declares the queue of a worker's remote control.
EXCLUSIVE = {"auto_delete": True, "expires": 10.0, "durable": False}
UNREADABLE = (
    "no json",
    "[]",
    '{"properties": 1}',
    "[" * 50_000,
    '{"properties": {"body_encoding": "zlib"}, "body": "x"}',
    '{"properties": {"body_encoding": [1]}, "body": "x"}',
    '{"properties": {"body_encoding": "base64"}, "body": "x"}',
    '{"properties": {"delivery_info": 1}, "body": "x"}',
)


@contextmanager
def consuming(
    connection: Connection,
    queue: str = "jobs",
    prefetch: int = 0,
    queue_options: dict[str, Any] | None = None,
    **options: object,
) -> Iterator[list[Message]]:
    got: list[Message] = []
    channel = connection.channel()
    consumer = Consumer(
        channel, [Queue(queue, **(queue_options or {}))], on_message=got.append, **options
    )
    consumer.qos(prefetch_count=prefetch)
    with consumer:
        yield got
    channel.close()


def drain(connection: Connection, got: list[Message], count: int) -> list[object]:
    """Wait until so many have come; give what they say."""
    while len(got) < count:
        connection.drain_events(timeout=10)
    return [message.decode() for message in got]


def publish(connection: Connection, *bodies: object, **options: object) -> None:
    connection.channel().queue_declare("jobs")
    for body in bodies:
        Producer(connection).publish(body, routing_key="jobs", **options)


def held(connection: Connection) -> int:
    return int(connection.transport.link.run(f"select count(*) from {LEASED}")[0][0])


def test_what_comes_while_somebody_waits_is_delivered(
    broker: Connection, other: Connection
) -> None:
    publish(other, 1)
    with consuming(broker) as got:
        drain(broker, got, 1)
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.05)
        publish(other, 2)
        assert drain(broker, got, 2) == [1, 2]


def test_the_loop_of_a_worker_is_woken_and_need_not_come_by_each_second(
    broker: Connection, other: Connection
) -> None:
    publish(other)
    hub = Hub()
    with consuming(broker) as got:
        broker.transport.register_with_event_loop(broker.connection, hub)
        poll = hub.poller.poll
        # Without its own second the loop sees only what wakes it, and would exceed the time-out.
        hub.poller.poll = lambda timeout: poll(timeout if timeout < LOOP_SECONDS else 600)
        loop = hub.create_loop()
        transport = broker.transport
        while not all(watch.is_awaited for watch in transport.consumption._watches.values()):
            next(loop)
        for number in range(1, 6):
            publish(other, number)
            while len(got) < number:
                next(loop)
        broker.transport.unregister_from_event_loop(broker.connection, hub)
    hub.close()
    assert [message.decode() for message in got] == [1, 2, 3, 4, 5]


def test_the_window_is_kept_and_acks_make_room(broker: Connection, other: Connection) -> None:
    publish(other, *range(10))
    with consuming(broker, prefetch=3) as got:
        drain(broker, got, 3)
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.05)
        assert (len(got), held(other)) == (3, 3)
        for message in list(got):
            message.ack()
        drain(broker, got, 6)
        assert held(other) == 3
    assert held(other) == 0


def test_what_a_closed_channel_had_is_with_others_at_once(
    broker: Connection, other: Connection
) -> None:
    publish(other, "task")
    with consuming(broker) as got:
        drain(broker, got, 1)
        assert held(other) == 1
    with consuming(other) as got:
        drain(other, got, 1)
        assert got[0].delivery_info["redelivered"] is True
        got[0].ack()
    # The thread that acks may have taken over the ack, and the close does not wait for it.
    wait_until(lambda: held(broker) == 0, what="the message is acked")


def test_what_is_requeued_comes_again_and_what_is_rejected_is_with_the_dead(
    broker: Connection, other: Connection
) -> None:
    publish(other, "task")
    with consuming(broker) as got:
        drain(broker, got, 1)
        got[0].requeue()
        drain(broker, got, 2)
        got[1].reject()
    assert other.transport.link.run("select count(*) from mbus.dead") == [(1,)]
    assert held(other) == 0


def test_higher_priorities_come_first(broker: Connection, other: Connection) -> None:
    for priority in (0, 9, 3, 5, None):
        publish(other, priority, priority=priority)
    publish(other, "late nine", priority=9)
    with consuming(broker, prefetch=1) as got:
        said = []
        for count in range(1, 7):
            said.append(drain(broker, got, count)[-1])
            got[-1].ack()
    assert said == [9, "late nine", 5, 3, 0, None]


def test_a_consumer_learns_of_a_priority_that_is_new(broker: Connection, other: Connection) -> None:
    publish(other, "plain")
    with consuming(broker) as got:
        drain(broker, got, 1)
        publish(other, "urgent", priority=7)
        assert drain(broker, got, 2) == ["plain", "urgent"]


def test_a_message_with_an_eta_is_with_nobody_until_it_is_due(
    broker: Connection, other: Connection
) -> None:
    publish(other, "later", headers={"eta": "2100-01-01T00:00:00+00:00"})
    publish(other, "long ago", headers={"eta": "2000-01-01T00:00:00+00:00"})
    with consuming(broker) as got:
        assert drain(broker, got, 1) == ["long ago"]
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.05)
        link = other.transport.link
        assert link.run("select count(*) from mbus.delayed") == [(1,)]
        link.run("update mbus.delayed set due_at = mbus.now()")
        assert drain(broker, got, 2) == ["long ago", "later"]


def test_upkeep_is_done_by_one_session_at_a_time_and_not_more_often_for_more_workers(
    broker: Connection, other: Connection
) -> None:
    publish(other, "later", headers={"eta": "2100-01-01T00:00:00+00:00"})
    broker.connect()
    link = broker.transport.link
    link.run("update mbus.delayed set due_at = mbus.now()")
    # Somebody else has done it just now.
    now = "setval('broker.maintained', (extract(epoch from clock_timestamp()) * 1000)::bigint)"
    assert link.run(f"select broker.maintain() from (select {now}) done")[0][0] == 0
    with other.transport.link.connection.transaction():
        # Somebody else is doing it.
        other.transport.link.run("select pg_advisory_xact_lock(hashtext('broker.maintain'), 0)")
        link.run("select setval('broker.maintained', 1)")
        assert link.run("select broker.maintain()") == [(0,)]
    assert link.run("select broker.maintain()") == [(1,)]


def test_upkeep_moves_the_figures_where_searches_begin(broker: Connection) -> None:
    """Without them searches would pass over more and more dead rows, and no slot be reused."""
    publish(broker, "task")
    with consuming(broker) as got:
        drain(broker, got, 1)
    link = broker.transport.link
    begins = "select max(last_value) > 0 from pg_sequences where right(sequencename, 5) = '$base'"

    def has_begun() -> bool:
        # Beside the upkeep of the connection, which does it as well.
        link.run("select setval('broker.maintained', 1)")
        link.run("select broker.maintain()")
        return link.run(begins) == [(True,)]

    wait_until(has_begun, what="the figures moved")


def test_an_expired_message_is_never_delivered(broker: Connection, other: Connection) -> None:
    publish(other, "short", expiration=0.001)
    publish(other, "long", expiration=3600)
    with consuming(broker) as got:
        assert drain(broker, got, 1) == ["long"]


def test_the_time_to_live_of_a_queue_counts_for_its_messages(broker: Connection) -> None:
    Queue("jobs", message_ttl=30).bind(broker.channel()).declare()
    Producer(broker).publish("task", routing_key="jobs")
    with consuming(broker) as got:
        drain(broker, got, 1)
        [[seconds]] = broker.transport.link.run(
            f"select extract(epoch from expires - added)::integer from {LEASED}"
        )
    assert seconds == 30


@pytest.mark.parametrize("body", [b"\x00\xff raw", "Ünïcode \x00 text", {"nested": [1, None]}])
def test_bodies_arrive_as_they_were_sent(
    broker: Connection, other: Connection, body: object
) -> None:
    publish(other, body)
    with consuming(broker, accept=["json", "application/data", "text/plain"]) as got:
        assert drain(broker, got, 1) == [body]


def test_a_lease_that_is_not_extended_ends_and_one_that_is_does_not(url: str) -> None:
    short = {"lease_seconds": 1}
    with Connection(url, transport_options=short) as alive, Connection(url) as watcher:
        publish(watcher, "task")
        with consuming(alive) as got:
            drain(alive, got, 1)
            link = watcher.transport.link
            [[first]] = link.run(f"select due_at from {LEASED}")
            wait_until(
                lambda: link.run(f"select due_at > %s from {LEASED}", (first,)) == [(True,)],
                what="the lease extended",
            )
            # As if the process had been killed: no more heartbeat.
            alive.transport.consumption._leases.close()
            with consuming(watcher) as taken_over:
                drain(watcher, taken_over, 1)
                assert taken_over[0].delivery_info["redelivered"] is True
                taken_over[0].ack()


def test_a_message_leased_again_by_the_same_connection_is_acknowledged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused = threading.Event()

    async def connect_refused(*arguments: Any, **named: Any) -> AsyncConnection:
        if is_refused.is_set():
            raise DatabaseUnavailable("too many connections")
        return await connect_async(*arguments, **named)

    monkeypatch.setattr("postroad.broker.leases.connect_async", connect_refused)
    is_refused.set()
    with Connection(url, transport_options={"lease_seconds": 2}) as alone, Connection(url) as other:
        publish(other, "task")
        with consuming(alone) as got:
            # Without a heartbeat the first lease ends, and the message comes again.
            drain(alone, got, 2)
            link = other.transport.link
            [[first]] = link.run(f"select due_at from {LEASED}")
            is_refused.clear()
            wait_until(
                lambda: link.run(f"select due_at > %s from {LEASED}", (first,)) != [(False,)],
                what="the second lease extended",
            )
            got[1].ack()
            wait_until(lambda: held(other) == 0, what="acknowledged")
            assert link.run("select broker.size('jobs')") == [(0,)]


def test_a_consumer_whose_heartbeat_has_failed_fails_too(
    broker: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect of the heartbeat")

    monkeypatch.setattr("postroad.broker.leases.lost_tokens", fail)
    broker.transport_options = {"lease_seconds": 1}
    publish(broker, "task")
    with consuming(broker) as got:
        drain(broker, got, 1)
        with pytest.raises(RuntimeError, match="a defect of the heartbeat"):
            drain(broker, got, 2)


def test_a_forked_child_leaves_the_sessions_of_its_parent_alone(
    broker: Connection, other: Connection
) -> None:
    publish(other, "before")
    with consuming(broker) as got:
        drain(broker, got, 1)
        child = os.fork()
        if child == 0:
            # What a pool's child does: it drops the connection that it inherited.
            status = 1
            try:
                broker.release()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        publish(other, "after")
        assert drain(broker, got, 2) == ["before", "after"]
        assert held(other) == 2


def test_a_lost_connection_is_an_error_that_kombu_knows_and_a_new_one_works(
    broker: Connection, other: Connection
) -> None:
    publish(broker, "first")
    [[pid]] = broker.transport.link.run("select pg_backend_pid()")
    other.connect()
    other.transport.link.run("select pg_terminate_backend(%s)", (pid,))
    producer = Producer(broker)
    producer.publish("second", routing_key="jobs", retry=True, retry_policy={"max_retries": 3})
    with consuming(other) as got:
        assert drain(other, got, 2) == ["first", "second"]


def test_simple_queues_work(broker: Connection, other: Connection) -> None:
    with broker.SimpleQueue("simple") as queue:
        queue.put({"hello": 1})
    with other.SimpleQueue("simple") as queue:
        message = queue.get(timeout=5)
        assert message.payload == {"hello": 1}
        message.ack()


def test_a_handler_that_raises_leaves_the_others_to_be_handled(
    broker: Connection, other: Connection
) -> None:
    publish(other, *range(5))
    got: list[object] = []

    def handle(message: Message) -> None:
        if not got:
            got.append("raised")
            raise RuntimeError("a handler's own")
        got.append(message.decode())
        message.ack()

    channel = broker.channel()
    with Consumer(channel, [Queue("jobs")], on_message=handle):
        with pytest.raises(RuntimeError, match="a handler's own"):
            broker.drain_events(timeout=10)
        while len(got) < 5:
            broker.drain_events(timeout=10)
    assert got == ["raised", 1, 2, 3, 4]
    channel.close()
    # What was handed out and not acknowledged comes again.
    with consuming(other) as again:
        assert drain(other, again, 1) == [0]


def test_what_was_taken_and_never_handed_out_is_given_back(
    broker: Connection, other: Connection
) -> None:
    publish(other, *range(3))

    def handle(_: Message) -> None:
        raise RuntimeError("a handler's own")

    channel = broker.channel()
    with Consumer(channel, [Queue("jobs")], on_message=handle), pytest.raises(RuntimeError):
        broker.drain_events(timeout=10)
    channel.close()
    wait_until(lambda: held(broker) == 0, what="acknowledged")
    with consuming(other) as again:
        assert sorted(drain(other, again, 3)) == [0, 1, 2]


def test_what_nobody_can_read_goes_to_the_dead_and_the_rest_comes(
    broker: Connection, other: Connection
) -> None:
    publish(other, 1)
    link = other.transport.link
    [[name]] = link.run("select bus_name from broker.queue where name = 'jobs'")
    for text in UNREADABLE:
        link.run(f"select mbus.post_{name}(%s)", (text,))
    publish(other, 2)
    with consuming(broker) as got:
        assert drain(broker, got, 2) == [1, 2]
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.05)
        for message in got:
            message.ack()
    assert link.run("select count(*) from mbus.dead") == [(len(UNREADABLE),)]
    wait_until(lambda: held(broker) == 0, what="acknowledged")


def test_a_temporary_queue_goes_to_its_last_consumer_and_the_first_keeps_its_others(
    broker: Connection, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    publish(other, 1)
    with consuming(broker) as got, consuming(broker, "control", queue_options=EXCLUSIVE) as first:
        drain(broker, got, 1)
        with consuming(other, "control", queue_options=EXCLUSIVE) as second:
            Producer(broker).publish("ping", routing_key="control")
            assert drain(other, second, 1) == ["ping"]
            publish(other, 2)
            assert drain(broker, got, 2) == [1, 2]
    assert first == []
    assert "queue_taken_over" in caplog.text


def test_getting_one_message_passes_over_what_nobody_can_read(broker: Connection) -> None:
    publish(broker)
    link = broker.transport.link
    [[name]] = link.run("select bus_name from broker.queue where name = 'jobs'")
    for text in UNREADABLE:
        link.run(f"select mbus.post_{name}(%s)", (text,))
    publish(broker, "readable")
    channel = broker.channel()
    message = channel.basic_get("jobs")
    assert message.decode() == "readable"
    message.ack()
    assert channel.basic_get("jobs") is None
    assert link.run("select count(*) from mbus.dead") == [(len(UNREADABLE),)]


def test_a_handler_that_raises_in_the_loop_of_a_worker_dead_letters_its_message(
    broker: Connection, other: Connection
) -> None:
    publish(other, *range(3))
    got: list[object] = []

    def handle(message: Message) -> None:
        if message.decode() == 1:
            raise OSError("a handler's own")
        got.append(message.decode())
        message.ack()

    hub = Hub()
    channel = broker.channel()
    with Consumer(channel, [Queue("jobs")], on_message=handle):
        broker.transport.register_with_event_loop(broker.connection, hub)
        loop = hub.create_loop()
        while len(got) < 2:
            next(loop)
        broker.transport.unregister_from_event_loop(broker.connection, hub)
    channel.close()
    hub.close()
    assert got == [0, 2]
    assert other.transport.link.run("select error like '%%handler''s own%%' from mbus.dead") == [
        (True,)
    ]
    # The holder may be sending the last ack just now.
    wait_until(lambda: held(other) == 0, what="acknowledged")


def test_only_administrators_of_the_bus_may_use_the_bus_queues_of_celery(
    broker: Connection,
) -> None:
    broker.connect()
    link = broker.transport.link
    [[user]] = link.run("select mbus._role('user')")
    link.run(f"create role {user}")
    publish(broker, "urgent", priority=3)
    may_post = (
        "select name, has_function_privilege(mbus._role('user'), p.oid, 'execute')"
        " from mbus.queue q join pg_proc p on p.proname = 'post_' || q.name order by 1"
    )
    rows = link.run(may_post)
    assert [is_allowed for _, is_allowed in rows] == [False, False]
    # As earlier versions have left them; an upgrade closes them.
    for name, _ in rows:
        link.run("select mbus.alter_queue(%s, false)", (name,))
    assert [is_allowed for _, is_allowed in link.run(may_post)] == [True, True]
    after = files("postroad.broker").joinpath("sql/after.sql").read_text(encoding="utf-8")
    link.run(after)
    assert link.run(may_post) == rows
    link.run(f"drop owned by {user}")
    link.run(f"drop role {user}")


def test_a_server_that_says_no_goodbye_is_a_lost_connection(broker: Connection) -> None:
    broker.channel()
    link = broker.transport.link
    assert link.run_prepared("select 1") == [("1",)]
    with socket.socket(fileno=os.dup(link.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
    with pytest.raises(broker.connection_errors):
        link.run_prepared("select 1")


def test_a_queue_that_is_paused_delivers_nothing_and_can_be_purged(
    broker: Connection, other: Connection
) -> None:
    publish(other, 1)
    link = other.transport.link
    link.run("select mbus.pause(q.name) from mbus.queue q")
    with consuming(broker) as got:
        with pytest.raises(TimeoutError):
            broker.drain_events(timeout=0.2)
        assert got == []
        assert other.channel().queue_purge("jobs") == 1
        publish(other, 2)
        link.run("select mbus.resume(q.name) from mbus.queue q")
        assert drain(broker, got, 1) == [2]
        got[0].ack()


def test_waits_and_attempts_of_deliveries_are_measured(
    broker: Connection, other: Connection
) -> None:
    for number in range(3):
        publish(other, number)
    with consuming(broker) as got:
        drain(broker, got, 3)
        for message in got:
            message.ack()
    broker.close()
    query = (
        "select kind, (select sum(c) from unnest(counts) c), total"
        " from mbus.measures where not isfinite(since)"
    )
    found = {kind: (count, total) for kind, count, total in other.transport.link.run(query)}
    assert (found["wait"][0], found["attempts"]) == (3, (3, 3.0))
    assert found["wait"][1] > 0
    assert found["batch"][1] == 3
