"""OpenTelemetry spans of messages: post, wait, handle, and links over a bridge."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from postroad import trace
from postroad.bridge import DatabaseBridge
from postroad.bus import AsyncBus, Retry, spans
from postroad.testing import wait_until_async
from tests.integration.bridge.conftest import Databases, queue
from tests.integration.bus.crew import Crew


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    for module, name in ((spans, "_spans"), (trace, "post_span")):
        monkeypatch.setattr(module, name, None)
    monkeypatch.setattr(trace, "_sources", [])
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert spans.record(provider)
    yield exporter
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def handled_by(crew: Crew, exporter: InMemorySpanExporter, calls: int) -> None:
    async def is_done() -> bool:
        return len(named(exporter, "handle orders")) == calls

    async with crew:
        await wait_until_async(is_done, what="all messages were handled")


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("mode", ["transaction", "lease"])
async def test_wait_and_handler_are_spans_of_the_trace_of_the_post(
    one_version: Databases, recorded: InMemorySpanExporter, colour: str, mode: str
) -> None:
    (database,) = one_version(1)
    queue(database, payload="text")
    seen: list[Any] = []

    def script(message: Any) -> None:
        seen.append(trace.current())
        if len(seen) == 1:
            raise ValueError("not yet")
        if len(seen) == 2:
            raise Retry(after=timedelta(0))

    crew = Crew(colour, database)
    async with AsyncBus(database) as bus:
        await bus.alter_consumer("orders", "default", backoff=timedelta(0))
        before = datetime.now(UTC).timestamp() * 1e9
        iid = await bus.post("orders", "one")
        crew.on("orders", script, mode=mode)
        await handled_by(crew, recorded, 3)
    (post,), (wait,) = named(recorded, "post orders"), named(recorded, "wait orders")
    handlers = named(recorded, "handle orders")
    assert [span.status.is_ok for span in handlers] == [False, True, True]
    assert [len(span.events) for span in handlers] == [1, 0, 0]
    assert [dict(span.attributes or {})["postroad.attempt"] for span in handlers] == [1, 2, 3]
    for span, line in zip((wait, *handlers), (None, *seen), strict=True):
        assert span.parent is not None
        assert post.context is not None
        assert (span.parent.trace_id, span.parent.span_id) == (
            post.context.trace_id, post.context.span_id,
        )  # fmt: skip
        assert dict(span.attributes or {})["messaging.message.id"] == iid
        # What the handler posts continues its own span.
        if line is not None:
            assert span.context is not None
            assert f"{span.context.span_id:016x}" in line
    assert before - 1e9 < (wait.start_time or 0) <= (wait.end_time or 0)


async def test_a_batch_handler_and_a_bridge_have_links_to_their_messages(
    one_version: Databases, recorded: InMemorySpanExporter
) -> None:
    a, b = one_version(2)
    queue(a, payload="text")
    bridge = DatabaseBridge("out", source=a, target=b, queue="orders")
    await bridge.install()
    async with AsyncBus(a) as bus:
        await bus.post_many("orders", ["one", "two"], headers=[{"n": "1"}, {"n": "2"}])
        async with bridge:

            async def is_carried() -> bool:
                return bridge.delivered >= 2

            await wait_until_async(is_carried, what="both were carried")
    crew = Crew("async", b)
    crew.on("orders", lambda messages: None, batch=10)
    await handled_by(crew, recorded, 1)
    posts = {span.context.span_id for span in named(recorded, "post orders") if span.context}
    assert len(posts) == 2
    for name in ("carry out", "handle orders"):
        linked = [link.context.span_id for span in named(recorded, name) for link in span.links]
        assert sorted(linked) == sorted(posts)


async def test_without_recording_handlers_are_called_directly() -> None:
    assert spans.handled(len, "orders", "default") is len
