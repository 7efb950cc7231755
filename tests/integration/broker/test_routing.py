"""Exchanges, queues and bindings, seen by connections that know nothing of each other."""

from __future__ import annotations

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import ChannelError

from postroad.testing import wait_until


def bodies(connection: Connection, queue: str) -> list[object]:
    channel = connection.channel()
    found = []
    while (message := channel.basic_get(queue)) is not None:
        found.append(message.decode())
        message.ack()
    channel.close()
    return found


def test_a_publisher_that_declared_nothing_reaches_what_others_have_bound(
    broker: Connection, other: Connection
) -> None:
    Queue("bills", Exchange("shop"), "bill").bind(broker.channel()).declare()
    Producer(other).publish({"number": 1}, exchange="shop", routing_key="bill")
    Producer(other).publish({"number": 2}, exchange="shop", routing_key="unknown")
    assert bodies(broker, "bills") == [{"number": 1}]


def test_publishing_on_a_closed_channel_is_an_error_after_which_kombu_reconnects(
    broker: Connection,
) -> None:
    channel = broker.channel()
    message = channel.prepare_message("late")
    # As Kombu does when it finds the connection lost while it declares a queue.
    broker.collect()
    with pytest.raises(broker.recoverable_connection_errors):
        channel.basic_publish(message, "", "bills")


@pytest.mark.parametrize(
    ("binding", "keys"),
    [
        ("#", ["order", "order.paid", "order.paid.late", "ordered", ""]),
        ("order.*", ["order.paid"]),
        ("order.#", ["order", "order.paid", "order.paid.late"]),
        ("*.paid.#", ["order.paid", "order.paid.late"]),
        ("#.late", ["order.paid.late"]),
        ("order", ["order"]),
    ],
)
@pytest.mark.both_versions
def test_topics_match_words(
    broker: Connection, other: Connection, binding: str, keys: list[str]
) -> None:
    exchange = Exchange("news", type="topic")
    Queue("mine", exchange, binding).bind(broker.channel()).declare()
    for key in ("order", "order.paid", "order.paid.late", "ordered", ""):
        Producer(other).publish([key], exchange="news", routing_key=key)
    assert bodies(broker, "mine") == [[key] for key in keys]


def test_a_fanout_gives_everybody_a_copy(broker: Connection, other: Connection) -> None:
    exchange = Exchange("all", type="fanout")
    for name in ("left", "right"):
        Queue(name, exchange).bind(broker.channel()).declare()
    Producer(other).publish("hello", exchange="all", routing_key="whatever")
    assert bodies(broker, "left") == bodies(other, "right") == ["hello"]


@pytest.mark.both_versions
def test_an_unbound_queue_gets_no_more(broker: Connection) -> None:
    queue = Queue("bills", Exchange("shop"), "bill").bind(broker.channel())
    queue.declare()
    queue.unbind_from(Exchange("shop"), "bill")
    Producer(broker).publish("late", exchange="shop", routing_key="bill")
    assert bodies(broker, "bills") == []


@pytest.mark.parametrize(
    "name",
    [
        "a" * 300,
        "Ünïcode — und Leerzeichen",
        "celery@host.celery.pidbox",
        "x'; drop table",
        "by_by_by",
    ],
)
def test_names_have_any_length_and_any_characters(
    broker: Connection, other: Connection, name: str
) -> None:
    Queue(name).bind(broker.channel()).declare()
    Producer(other).publish("hello", routing_key=name)
    assert bodies(other, name) == ["hello"]
    [[found, bus_name]] = broker.transport.link.run("select name, bus_name from broker.queue")
    assert found == name
    assert bus_name.isascii()
    assert len(bus_name) < 40


def test_names_that_look_alike_to_the_bus_stay_apart(broker: Connection) -> None:
    for name in ("a-b", "a.b", "A_B"):
        Queue(name).bind(broker.channel()).declare()
        Producer(broker).publish(name, routing_key=name)
    assert [bodies(broker, name) for name in ("a-b", "a.b", "A_B")] == [["a-b"], ["a.b"], ["A_B"]]


@pytest.mark.both_versions
def test_what_is_not_there_is_said_in_the_words_of_amqp(broker: Connection) -> None:
    channel = broker.channel()
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        channel.queue_declare("nowhere", passive=True)
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        channel.exchange_declare("nowhere", passive=True)
    channel.exchange_declare("shop", "direct")
    with pytest.raises(ChannelError, match="PRECONDITION_FAILED"):
        channel.exchange_declare("shop", "topic")


@pytest.mark.both_versions
def test_a_queue_tells_its_size_and_can_be_emptied_and_deleted(
    broker: Connection, other: Connection
) -> None:
    queue = Queue("heap").bind(broker.channel())
    queue.declare()
    for number in range(5):
        Producer(other).publish(number, routing_key="heap", priority=number)
    Producer(other).publish(
        "later", routing_key="heap", headers={"eta": "2100-01-01T00:00:00+00:00"}
    )
    assert queue.queue_declare(passive=True).message_count == 5
    assert queue.purge() == 6
    assert queue.queue_declare(passive=True).message_count == 0
    queue.delete()
    assert broker.transport.link.run("select count(*) from mbus.queue") == [(0,)]
    # Like RabbitMQ: what goes to a queue that is not there goes nowhere.
    Producer(other).publish("lost", routing_key="heap")


@pytest.mark.both_versions
def test_a_queue_that_was_deleted_and_made_again_is_found_again(
    broker: Connection, other: Connection
) -> None:
    queue = Queue("phoenix").bind(broker.channel())
    queue.declare()
    Producer(other).publish("first", routing_key="phoenix")
    queue.delete()
    queue.declare()
    Producer(other).publish("second", routing_key="phoenix")
    assert bodies(other, "phoenix") == ["second"]


@pytest.mark.both_versions
def test_a_temporary_queue_goes_with_its_connection(broker: Connection, url: str) -> None:
    with Connection(url) as short:
        Queue("reply", auto_delete=True, expires=10).bind(short.channel()).declare()
        Producer(broker).publish("hello", routing_key="reply")
    Producer(broker).publish("nobody is there", routing_key="reply")
    link = broker.transport.link
    wait_until(
        lambda: (
            link.run("select broker.maintain()")
            and link.run("select count(*) from mbus.temporary_queue") == [(0,)]
        ),
        what="the session's rows gone",
    )


@pytest.mark.both_versions
def test_a_queue_that_nobody_uses_expires(broker: Connection) -> None:
    Queue("brief", expires=0.2).bind(broker.channel()).declare()
    link = broker.transport.link
    wait_until(lambda: link.run("select broker.clear_queues()") == [(1,)], what="queue cleared")
    assert link.run("select count(*) from broker.queue") == [(0,)]
