"""Out to a real RabbitMQ and in from it: what travels, what is refused, what comes twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import psycopg
import pytest

from postroad.bridge import (
    BrokerRefused,
    Outgoing,
    PumpSettings,
    RabbitIn,
    RabbitOut,
    RabbitPublisher,
    RabbitRoute,
    Unroutable,
)
from postroad.bus import Bus, cloud_event
from postroad.bus.hstore import parse
from postroad.testing import wait_until_async
from tests.fixtures.rabbitmq import RabbitServer
from tests.integration.bridge.conftest import Databases, depth, queue, run, taken


async def until(service: Any, count: int) -> None:
    async def done() -> bool:
        return service.delivered + service.dropped + service.refused >= count

    await wait_until_async(done, what=f"{count} messages carried")


async def received(url: str, name: str, count: int) -> list[Any]:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        there = await channel.get_queue(name)
        found = []
        for _ in range(count):
            message = await there.get(timeout=10)
            await message.ack()
            found.append(message)
        return found


async def test_out_maps_a_message_and_keeps_its_iid(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (a,) = one_version(1)
    queue(a, payload="jsonb")
    route = RabbitRoute(queue=rabbitmq.unique("orders"))
    bridge = RabbitOut("out", source=a, url=rabbitmq.tls_url, queue="orders", route=route)
    await bridge.install()
    expires = datetime.now(UTC) + timedelta(hours=1)
    ((iid,),) = run(
        a,
        "select mbus.post_orders('{\"n\": 1}', 'colour=>red,priority=>high,correlation=>c7',"
        " 'state=>DONE', null, %s)",
        expires,
    )
    async with bridge:
        await until(bridge, 1)
    (message,) = await received(rabbitmq.url, str(route.queue), 1)
    assert message.message_id == iid
    assert message.body == b'{"n": 1}'
    assert message.content_type == "application/json"
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert message.headers["colour"] == "red"
    assert message.headers["property.state"] == "DONE"
    assert message.priority == 9
    assert message.correlation_id == "c7"
    assert datetime.fromisoformat(str(message.headers["expires"])) == expires
    assert depth(a, "to_out") == 0


async def test_out_and_in_bring_a_message_over_unchanged(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    a, b = one_version(2)
    queue(a)
    queue(b, "arrivals")
    name = rabbitmq.unique("orders")
    out = RabbitOut(
        "out",
        source=a,
        url=rabbitmq.url,
        queue="orders",
        route=RabbitRoute(
            queue=name,
            exchange=rabbitmq.unique("shop"),
            routing_key="orders.{group}.{region}",
            binding_key="orders.*.eu",
        ),
    )
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="arrivals", route=RabbitRoute(queue=name)
    )
    await out.install()
    await back.install()
    ((iid,),) = run(
        a,
        "select mbus.post_orders('n=>\"1, \\\"x\\\"\",nothing=>null', 'group=>g7', 'region=>eu',"
        " null, now() + interval '1 hour')",
    )
    run(a, "select mbus.post_orders('n=>2', 'group=>g7', 'region=>us')")
    async with out, back:
        await until(out, 2)
        await until(back, 1)
    (message,) = taken(b, "arrivals")
    headers = parse(message.headers)
    assert parse(message.data) == {"n": '1, "x"', "nothing": None}
    assert parse(message.properties) == {"region": "eu"}
    assert headers["group"] == "g7"
    assert headers["source_iid"] == iid
    assert message.expires is not None
    # The other one had no queue to go to: it is in the dmq, not in nothing.
    ((dead, error),) = run(a, "select data, error from mbus.dead")
    assert parse(dead) == {"n": "2"}
    assert "no queue for routing key 'orders.g7.us'" in error


async def test_cloud_events_have_the_names_of_the_amqp_binding_on_the_way(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    a, b = one_version(2)
    queue(a, payload="jsonb")
    queue(b, "arrivals", payload="jsonb")
    name = rabbitmq.unique("orders")
    out = RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=RabbitRoute(name))
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="arrivals", route=RabbitRoute(queue=name)
    )
    await out.install()
    event = cloud_event("order.created", "/shop", id="7", datacontenttype="application/json")
    with Bus(a) as bus:
        bus.post("orders", {"n": 1}, headers=event)
        bus.post("orders", {"n": 2}, headers={"ce_other": "x"})
    async with out:
        await until(out, 2)
    sent, plain = await received(rabbitmq.url, name, 2)
    assert sent.headers["cloudEvents:specversion"] == "1.0"
    assert (sent.headers["cloudEvents:type"], sent.headers["cloudEvents:id"]) == (
        "order.created",
        "7",
    )
    assert sent.content_type == "application/json"
    assert not any(header.startswith("ce_") for header in sent.headers)
    assert plain.headers["ce_other"] == "x"
    foreign = aio_pika.Message(
        b"3", headers={"cloudEvents_specversion": "1.0", "cloudEvents_type": "foreign"}
    )
    await back.install()
    async with back, RabbitPublisher(rabbitmq.url, channels=1) as publisher:
        await publisher.publish_many([Outgoing(one, name) for one in (sent, foreign)])
        await until(back, 2)
    first, second = (parse(message.headers) for message in taken(b, "arrivals"))
    assert {name: first[name] for name in event} == event
    assert (second["ce_specversion"], second["ce_type"]) == ("1.0", "foreign")


async def test_in_posts_once_what_comes_twice(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b, payload="text")
    name = rabbitmq.unique("orders")
    bridge = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await bridge.install()
    async with bridge, RabbitPublisher(rabbitmq.url, channels=2) as publisher:

        def message(body: str, message_id: str | None) -> Outgoing:
            return Outgoing(aio_pika.Message(body.encode(), message_id=message_id), name)

        bodies = [("a", "id-1"), ("b", "id-2"), ("a again", "id-1"), ("c", "orders.7@abc123")]
        assert await publisher.publish_many([message(*each) for each in bodies]) == [None] * 4
        await until(bridge, 4)
        again = [("b again", "id-2"), ("c again", "orders.7@abc123"), ("d", "orders.8@abc123")]
        await publisher.publish_many([message(*each) for each in again])
        await until(bridge, 7)
    assert [each.data for each in taken(b)] == ["a", "b", "c", "d"]
    assert bridge.dropped == 3
    assert run(b, "select carried, dropped, refused from bridge.status") == [(4, 3, 0)]


async def test_in_keeps_what_the_queue_cannot_take(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b, payload="jsonb")
    name = rabbitmq.unique("orders")
    bridge = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await bridge.install()
    async with bridge, RabbitPublisher(rabbitmq.url) as publisher:
        for body, headers in ((b"{}", {}), (b"no json", {}), (b"[1]", {"priority": "urgent"})):
            await publisher.publish(aio_pika.Message(body, headers=headers), name)
        await until(bridge, 3)
    assert [each.data for each in taken(b)] == [{}]
    kept = run(b, "select body, error from bridge.refused order by id")
    assert [bytes(body) for body, _ in kept] == [b"no json", b"[1]"]
    assert "unknown priority" in kept[1][1]
    assert run(b, "select refused from bridge.status") == [(2,)]


async def test_a_stream_is_read_from_where_the_last_commit_left_it(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    a, b = one_version(2)
    queue(a)
    queue(b)
    route = RabbitRoute(queue=rabbitmq.unique("log"), kind="stream")
    out = RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=route)
    await out.install()
    settings = PumpSettings(batch_messages=10)

    def back() -> RabbitIn:
        return RabbitIn(
            "back", url=rabbitmq.url, target=b, queue="orders", route=route, settings=settings
        )

    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 25) g")
    await back().install()
    async with out, back() as first:
        await until(first, 25)
    run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(26, 30) g")
    async with out_again(a, rabbitmq, route), back() as second:
        await until(second, 5)
    assert second.dropped == 0
    assert [int(parse(each.data)["n"] or 0) for each in taken(b)] == list(range(1, 31))


@pytest.mark.parametrize("kind", ["stream", "quorum"])
async def test_a_queue_that_is_there_is_read_as_what_it_is(
    rabbitmq: RabbitServer, one_version: Databases, kind: str
) -> None:
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("there")
    limit = {"x-max-age": "1D"} if kind == "stream" else {"x-max-length": 1000}
    async with await aio_pika.connect(rabbitmq.url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(name, durable=True, arguments={"x-queue-type": kind, **limit})

    def back() -> RabbitIn:
        route = RabbitRoute(queue=name, kind="existing")
        return RabbitIn("back", url=rabbitmq.url, target=b, queue="orders", route=route)

    await back().install()
    async with RabbitPublisher(rabbitmq.url) as publisher:
        for begin in (1, 11):
            # Each time while no bridge runs.
            for number in range(begin, begin + 10):
                message = aio_pika.Message(b'{"n": "1"}', message_id=f"news.{number}@abc")
                await publisher.publish(message, name)
            async with back() as bridge:
                await until(bridge, 10)
                assert bridge.dropped == 0
                run(b, "select bridge.set_state('back', 'draining')")

                async def drained() -> bool:
                    return run(b, "select state, lag from bridge.status") == [("drained", 0)]

                await wait_until_async(drained, what="drained", timeout_seconds=30)
            run(b, "select bridge.set_state('back', 'running')")
    assert len(taken(b)) == 20


async def test_a_publish_that_fails_does_not_block_one_that_waits_for_its_channel(
    rabbitmq: RabbitServer,
) -> None:
    name = rabbitmq.unique("waiting")
    async with await aio_pika.connect(rabbitmq.url) as connection:
        await (await connection.channel()).declare_queue(name, durable=True)
    async with RabbitPublisher(rabbitmq.url, channels=1) as publisher, asyncio.timeout(30):
        refused, published = await asyncio.gather(
            publisher.publish(aio_pika.Message(b"1"), "any", "no such exchange"),
            publisher.publish(aio_pika.Message(b"2"), name),
            return_exceptions=True,
        )
    assert isinstance(refused, BrokerRefused)
    assert published is None
    assert [message.body for message in await received(rabbitmq.url, name, 1)] == [b"2"]


async def test_a_pause_under_load_is_no_failure(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("orders")
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await back.install()
    back.signals.listen("consuming")
    async with back, RabbitPublisher(rabbitmq.url) as publisher:
        await back.signals.wait("consuming")
        for signal in ("leaving", "paused", "failed"):
            back.signals.listen(signal)
        with psycopg.connect(b) as blocker:
            (tables,) = blocker.execute(
                "select string_agg(distinct format('mbus.%I', payload_table), ', ')"
                " from mbus.queue q, mbus._tables(q) where q.name = 'orders'"
            ).fetchone() or ("",)
            blocker.execute(f"lock table {tables} in share mode".encode())
            # The first one waits for the lock, and the others behind it.
            for number in range(5):
                message = aio_pika.Message(b'{"n": "1"}', message_id=f"news.{number}@abc")
                await publisher.publish(message, name)
            run(b, "select bridge.set_state('back', 'paused')")
            await back.signals.wait("leaving")
        await back.signals.wait("paused")
        assert run(b, "select state, problem from bridge.status") == [("paused", None)]
    assert (back.delivered, back.dropped, len(taken(b))) == (5, 0, 5)


def out_again(a: str, rabbitmq: RabbitServer, route: RabbitRoute) -> RabbitOut:
    return RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=route)


async def test_a_publisher_says_what_is_unroutable(rabbitmq: RabbitServer) -> None:
    async with RabbitPublisher(rabbitmq.url) as publisher:
        with pytest.raises(Unroutable):
            await publisher.publish(aio_pika.Message(b"x"), rabbitmq.unique("nowhere"))


@pytest.mark.slow
@pytest.mark.chaos
async def test_a_bridge_uses_the_first_address_of_a_cluster_that_answers(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (a,) = one_version(1)
    queue(a)
    url = f"amqp://guest:hidden@127.0.0.1:1/;{rabbitmq.url}"
    route = RabbitRoute(queue=rabbitmq.unique("orders"))
    out = RabbitOut("out", source=a, url=url, queue="orders", route=route)
    back = RabbitIn("back", url=url, target=a, queue="orders", route=route)
    await out.install()
    await back.install()
    run(a, "select mbus.post_orders('n=>1')")
    async with out:
        await until(out, 1)
    (source,) = run(a, "select source from bridge.inlets")[0]
    assert "hidden" not in source
    assert "guest" not in source


async def test_bridges_and_publishers_come_back_after_the_broker(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    a, b = one_version(2)
    queue(a)
    queue(b)
    route = RabbitRoute(queue=rabbitmq.unique("orders"))
    out = RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=route)
    back = RabbitIn("back", url=rabbitmq.url, target=b, queue="orders", route=route)
    await out.install()
    await back.install()
    for service in (out, back):
        service.signals.listen("failed")
    async with out, back, RabbitPublisher(rabbitmq.url) as publisher:
        run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(1, 50) g")
        await until(back, 50)
        rabbitmq.settle(str(route.queue))
        rabbitmq.kill()
        run(a, "select mbus.post_orders(hstore('n', g::text)) from generate_series(51, 99) g")
        await out.signals.wait("failed")
        await back.signals.wait("failed")
        assert "RabbitMQ cannot be reached" in run(a, "select problem from bridge.status")[0][0]
        rabbitmq.start()
        await publisher.publish(
            aio_pika.Message(b'{"n": "100"}', message_id="mine"),
            str(route.queue),
            patience=timedelta(seconds=20),
        )
        await until(back, 100)
    assert sorted(int(parse(each.data)["n"] or 0) for each in taken(b)) == list(range(1, 101))
