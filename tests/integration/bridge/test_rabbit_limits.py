"""What AMQP cannot carry or PostgreSQL cannot keep is set aside, and holds up nothing."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import aio_pika
import pytest
from pamqp import encode

from postroad.bridge import RabbitIn, RabbitOut, RabbitPublisher, RabbitRoute, Unfit
from postroad.bus.hstore import parse
from postroad.testing import wait_until_async
from tests.fixtures.rabbitmq import RabbitServer
from tests.integration.bridge.conftest import Databases, depth, queue, run, taken
from tests.integration.bridge.test_rabbitmq import until


async def bodies(url: str, name: str) -> list[bytes]:
    """Empty a queue of the broker."""
    found = []
    async with await aio_pika.connect(url) as connection:
        there = await (await connection.channel()).get_queue(name)
        while (message := await there.get(no_ack=True, fail=False)) is not None:
            found.append(message.body)
    return found


async def test_what_amqp_cannot_carry_goes_to_the_dmq_and_the_rest_goes_on(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (a,) = one_version(1)
    queue(a)
    name = rabbitmq.unique("orders")
    # By the default exchange, so that a key is a queue; its length is the message's.
    route = RabbitRoute(queue=name, routing_key=name + "{tail}")
    out = RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=route)
    await out.install()
    unfit = {
        "its correlation is longer": "headers => hstore('correlation', repeat('c', 300))",
        "its content_type is longer": "headers => hstore('content_type', repeat('é', 128))",
        "its routing key is longer": "headers => hstore('tail', repeat('k', 300))",
        "a header's name is longer": "headers => hstore(repeat('n', 129), 'v')",
        "a header's name": "properties => hstore(repeat('n', 120), 'v')",
        "headers and properties are longer": "headers => hstore('h', repeat('x', 140000))",
    }
    run(a, "select mbus.post_orders('n=>1')")
    for arguments in unfit.values():
        run(a, f"select mbus.post_orders('n=>0', {arguments})")
    # The broker is set to take 4 MiB a message.
    run(a, "select mbus.post_orders(hstore('n', repeat('x', 5000000)))")
    fitting = (
        "headers => hstore('correlation', repeat('c', 255))",
        "headers => hstore('h', repeat('x', 100000))",
        "expires => '9999-12-30 00:00+00'",
        "expires => clock_timestamp() + interval '100 years'",
        "headers => 'enqueue_time => \"0001-01-01 00:00:00+00\"'",
    )
    for number, arguments in enumerate(fitting, start=2):
        run(a, f"select mbus.post_orders('n=>{number}', {arguments})")
    async with out:
        await until(out, len(unfit) + len(fitting) + 2)
    # The broker shut the channel over the long one: what was beside it may have been sent twice.
    assert list(dict.fromkeys(await bodies(rabbitmq.url, name))) == [
        f'{{"n": "{number}"}}'.encode() for number in range(1, len(fitting) + 2)
    ]
    errors = [error for (error,) in run(a, "select error from mbus.dead order by iid")]
    assert depth(a, "to_out") == 0
    assert len(errors) == len(unfit) + 1
    for reason in (*unfit, "message size"):
        assert any(reason in error for error in errors), reason
    assert run(a, "select problem, refused from bridge.status") == [(None, len(unfit) + 1)]


async def test_a_dead_message_with_any_enqueue_time_is_buried(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (a,) = one_version(1)
    queue(a)
    route = RabbitRoute(queue=rabbitmq.unique("orders"))
    out = RabbitOut("out", source=a, url=rabbitmq.url, queue="orders", route=route)
    await out.install()
    run(
        a,
        "select mbus.post_orders('n=>0',"
        " hstore(array['correlation', repeat('c', 300), 'enqueue_time', 'yesterday, or so']))",
    )
    async with out:
        await until(out, 1)
    assert out.refused == 1


async def test_a_publisher_says_what_does_not_fit(rabbitmq: RabbitServer) -> None:
    async with RabbitPublisher(rabbitmq.url) as publisher:
        with pytest.raises(Unfit, match="correlation"):
            await publisher.publish(aio_pika.Message(b"x", correlation_id="c" * 256), "q")
        with pytest.raises(Unfit, match="message size"):
            await publisher.publish(aio_pika.Message(b"x" * 5_000_000), "q")


BAD = (
    aio_pika.Message(b'{"n": "1"}', headers={"h": "a\0b"}, message_id="id 1"),
    aio_pika.Message(b'{"n": "1"}', headers={"property.h": "a\0b"}, message_id="id 2"),
    aio_pika.Message(b'{"n": "1"}', headers={"h\0": "b"}, message_id="id 3"),
    aio_pika.Message(b'{"n": "1"}', message_id="id\0 4"),
    aio_pika.Message(b'{"n": "1"}', correlation_id="\0", message_id="id 5"),
    aio_pika.Message(b'{"n": "\\ud800"}', message_id="id 6"),
    aio_pika.Message(b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", message_id="id 7"),
    aio_pika.Message(b'{"n": "1"}', headers={"seenby": "{broken"}, message_id="id 8"),
)


async def test_what_cannot_be_kept_is_refused_and_the_rest_goes_on(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("orders")
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await back.install()
    odd = {
        # What no bridge can have written is no journey: the sender's own id counts.
        "seenby_nodes": '{"shop@abc"}',
        "source_iid": "x" * 10_000 + ".1@abc",
    }
    async with back, RabbitPublisher(rabbitmq.url) as publisher:
        for message in BAD:
            await publisher.publish(message, name)
        await publisher.publish(
            aio_pika.Message(b'{"n": "odd"}', headers=odd, message_id="odd"), name
        )
        await publisher.publish(aio_pika.Message(b'{"n": "good"}', message_id="id 1"), name)
        await until(back, len(BAD) + 2)
    assert [parse(each.data)["n"] for each in taken(b)] == ["odd", "good"]
    kept = run(b, "select message_id, body, error from bridge.refused order by id")
    assert [bytes(body) for _, body, _ in kept] == [message.body for message in BAD]
    assert [message_id for message_id, _, _ in kept][3] == "id␀ 4"
    assert "NUL character" in kept[0][2]
    assert run(b, "select problem, refused from bridge.status") == [(None, len(BAD))]


class NotUtf8(str):
    """A text as a careless sender writes it."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff" + str.encode(self)


async def test_what_is_no_utf8_and_no_moment_is_read_all_the_same(
    rabbitmq: RabbitServer, one_version: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("orders")
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await back.install()
    # The driver writes what we say: milliseconds beyond all years.
    monkeypatch.setitem(encode.METHODS, "timestamp", lambda _: struct.pack(">Q", 2**63 - 1))
    bad = aio_pika.Message(b'{"n": "1"}', message_id="1")
    bad.correlation_id = NotUtf8("a")
    async with back, RabbitPublisher(rabbitmq.url) as publisher:
        for message in (
            bad,
            aio_pika.Message(b'{"n": "2"}', headers={NotUtf8("b"): "c"}, message_id="2"),
            aio_pika.Message(b'{"n": "3"}', timestamp=datetime.now(UTC), message_id="3"),
        ):
            await publisher.publish(message, name)
        await until(back, 3)
    found = taken(b)
    assert [parse(each.data)["n"] for each in found] == ["1", "2", "3"]
    assert parse(found[0].headers)["correlation"] == r"\xffa"
    assert parse(found[1].headers)[r"\xffb"] == "c"


async def test_a_message_that_nobody_foresaw_is_found_among_the_others(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    """The target may refuse in ways of its own; here a trigger's error speaks of bad data."""
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("orders")
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await back.install()
    run(
        b,
        "create or replace function bridge._accept_foreign("
        " p_queue text, p_ids text[], p_own text[], p_new boolean[]) returns boolean[]"
        " language plpgsql as $$ begin"
        " if 'bad' = any (p_ids) then"
        "   raise program_limit_exceeded using message = 'too long for me'; end if;"
        " return p_new; end $$",
    )
    async with RabbitPublisher(rabbitmq.url) as publisher:
        async with await aio_pika.connect(rabbitmq.url) as connection:
            channel = await connection.channel()
            await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
        for message_id in ("one", "bad", "two"):
            body = f'{{"n": "{message_id}"}}'.encode()
            await publisher.publish(aio_pika.Message(body, message_id=message_id), name)
    async with back:
        await until(back, 3)
    assert [parse(each.data)["n"] for each in taken(b)] == ["one", "two"]
    assert run(b, "select message_id, error from bridge.refused") == [("bad", "too long for me")]


async def test_a_message_that_comes_home_through_the_broker_is_dropped(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    a, b = one_version(2)
    for dsn in (a, b):
        queue(dsn)
    there, home = rabbitmq.unique("there"), rabbitmq.unique("home")

    def out(dsn: str, name: str) -> RabbitOut:
        route = RabbitRoute(queue=name)
        return RabbitOut("out", source=dsn, url=rabbitmq.url, queue="orders", route=route)

    def back(dsn: str, name: str) -> RabbitIn:
        route = RabbitRoute(queue=name)
        return RabbitIn("back", url=rabbitmq.url, target=dsn, queue="orders", route=route)

    bridges: list[Any] = [out(a, there), back(b, there), out(b, home), back(a, home)]
    for bridge in bridges:
        await bridge.install()
    run(a, "select mbus.post_orders('n=>1')")
    async with bridges[0], bridges[1], bridges[2], bridges[3]:
        await until(bridges[3], 1)
        assert bridges[3].dropped == 1
    assert [parse(each.data)["n"] for each in taken(a)] == ["1"]
    assert [parse(each.data)["n"] for each in taken(b)] == ["1"]
    assert (depth(a, "to_out"), depth(b, "to_out")) == (0, 0)


async def test_a_stream_has_a_lag_a_short_ledger_and_an_end(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b)
    route = RabbitRoute(queue=rabbitmq.unique("log"), kind="stream")
    back = RabbitIn("back", url=rabbitmq.url, target=b, queue="orders", route=route)
    await back.install()
    async with back, RabbitPublisher(rabbitmq.url) as publisher:
        for number in range(1, 41):
            body = b"no json" if number > 30 else b'{"n": "1"}'
            message = aio_pika.Message(body, message_id=f"news.{number}@abc")
            await publisher.publish(message, str(route.queue))
        await until(back, 40)

        async def settled() -> bool:
            ((lag, rows),) = run(
                b,
                "select s.lag, i.ledger_rows"
                " from bridge.status s join bridge.inlets i using (name)",
            )
            return lag == 0 and rows <= 20

        await wait_until_async(settled, what="lag known, ledger short", timeout_seconds=30)
        # All of the last batch was refused, and yet it is behind us.
        assert run(b, "select max(position) from bridge.arrived") == [(39,)]
        run(b, "select bridge.set_state('back', 'draining')")

        async def drained() -> bool:
            return run(b, "select state from bridge.status") == [("drained",)]

        await wait_until_async(drained, what="drained", timeout_seconds=30)
    assert back.delivered == 30
    assert back.refused == 10


async def test_a_bridge_that_only_connects_keeps_its_problem(
    rabbitmq: RabbitServer, one_version: Databases
) -> None:
    (b,) = one_version(1)
    queue(b)
    name = rabbitmq.unique("orders")
    back = RabbitIn(
        "back", url=rabbitmq.url, target=b, queue="orders", route=RabbitRoute(queue=name)
    )
    await back.install()
    # Not the message's fault: it waits until somebody mends the target.
    run(b, "alter table bridge.foreign_0 rename to foreign_away")
    for signal in ("failed", "consuming"):
        back.signals.listen(signal)
    async with back, RabbitPublisher(rabbitmq.url) as publisher:
        await back.signals.wait("consuming")
        await publisher.publish(aio_pika.Message(b'{"n": "1"}', message_id="id"), name)
        await back.signals.wait("failed")
        await back.signals.wait("consuming")
        ((problem,),) = run(b, "select problem from bridge.status")
        assert problem is not None
        run(b, "alter table bridge.foreign_away rename to foreign_0")
        await until(back, 1)

        async def well() -> bool:
            return run(b, "select problem from bridge.status") == [(None,)]

        await wait_until_async(well, what="no problem any more")
