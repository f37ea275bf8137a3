"""Spans of what a node is asked and asks: one trace through several nodes, and how each ended."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from parley._crypto.identity import Identity
from parley._node.config import NodeConfig
from parley._node.errors import CallRefused
from parley._node.handlers.trace_context import TraceContext
from parley._node.handlers.tracing import trace
from parley._node.node import Node
from parley._node.remote.requests import Call
from parley._node.testing import connect_nodes, connected_nodes

FAST = NodeConfig(algorithms={"kex": ("x25519",)})


class Recorded:
    """A provider of spans, and those that are over."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def node(self) -> Node:
        """A node whose spans are recorded here."""
        node = Node(Identity.create(), config=FAST)
        trace(node, self.provider)
        return node

    def spans(self) -> list[ReadableSpan]:
        """Those that are over, in the order in which they ended."""
        return list(self._exporter.get_finished_spans())


async def test_a_call_that_makes_a_call_is_one_trace(anyio_backend: Any) -> None:
    recorded = Recorded()
    shop, store = recorded.node(), recorded.node()

    async with connected_nodes(recorded.node(), shop) as made, store:
        to_store, _ = await connect_nodes(shop, store)

        @shop.on_call("order")
        async def order(call: Call) -> Any:
            return await to_store.call("take", call.data)

        @store.on_call("take")
        async def take(call: Call) -> Any:
            return call.headers["traceparent"]

        last = await made.peer.call("order", 3)
    spans = recorded.spans()
    assert [(span.name, span.kind) for span in spans] == [
        ("call take", SpanKind.SERVER),
        ("call take", SpanKind.CLIENT),
        ("call order", SpanKind.SERVER),
        ("call order", SpanKind.CLIENT),
    ]
    assert len({span.context.trace_id for span in spans}) == 1
    for span, parent in zip(spans, [*spans[1:], None], strict=True):
        assert (span.parent and span.parent.span_id) == (parent and parent.context.span_id)
        assert span.attributes is not None
        assert span.attributes["parley.code"] == "accepted"
    sent = TraceContext.parse(last)
    assert sent is not None
    assert int(sent.span_id, 16) == spans[1].context.span_id


async def test_spans_say_how_it_ended(anyio_backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    recorded = Recorded()
    shop = recorded.node()

    @shop.on_call("refuses")
    async def refuses(call: Call) -> Any:
        raise CallRefused(3)

    @shop.on_call("fails")
    async def fails(call: Call) -> Any:
        raise KeyError("secret")

    async with connected_nodes(None, shop) as made:
        for topic in ("refuses", "fails"):
            # An invalid trace header begins a new trace.
            with pytest.raises(CallRefused):
                await made.peer.call(topic, headers={"traceparent": 7})
    refused, failed = recorded.spans()
    assert refused.attributes == {
        "rpc.system": "parley",
        "parley.kind": "call",
        "parley.code": "rejected",
    }
    assert refused.status.status_code is StatusCode.UNSET  # Of the caller.
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "KeyError"
    assert failed.status.status_code is StatusCode.ERROR
    assert "secret" not in failed.to_json()
    assert refused.parent is failed.parent is None


async def test_notes_go_with_the_span_that_publishes_them(anyio_backend: Any) -> None:
    recorded = Recorded()
    shop = recorded.node()
    news = shop.topic("news")

    @shop.on_call("tell")
    async def tell(call: Call) -> None:
        await news.publish(call.data)

    async with connected_nodes(None, shop) as made, made.peer.subscribe("news") as notes:
        await made.peer.call("tell", 1)
        assert await anext(notes) == 1
        sent = TraceContext.parse(notes.headers.get("traceparent"))
    told = [span for span in recorded.spans() if span.name == "call tell"]
    assert sent is not None
    assert int(sent.span_id, 16) == told[0].context.span_id
