"""Tests of request ids and trace contexts, and of how they go from node to node."""

from typing import Any

import pytest

from parley import Call, Stream
from parley._node.handlers.trace_context import TraceContext
from parley._node.testing import connect_nodes
from parley.interceptors import current_request_id, current_trace
from tests.node.network import meeting, new_node
from tests.sweep import sweep

# The example of the recommendation, section 3.2.
EXAMPLE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_traceparent_is_read_and_written() -> None:
    trace = TraceContext.parse(EXAMPLE)
    assert trace == TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", 1)
    assert trace.sampled
    assert str(trace) == EXAMPLE
    child = trace.child()
    assert child.trace_id == trace.trace_id
    assert child.span_id != trace.span_id
    assert TraceContext.parse(str(TraceContext.new())) is not None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    trace = TraceContext.parse("cc" + EXAMPLE[2:-2] + "f0-more")
    assert trace is not None
    assert not trace.sampled
    assert str(trace) == EXAMPLE[:-2] + "00"


@sweep(
    "text",
    [
        None,
        5,
        "",
        EXAMPLE.upper(),
        EXAMPLE[:-1],
        EXAMPLE + "-more",
        EXAMPLE + "0",
        "ff" + EXAMPLE[2:],
        EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        EXAMPLE.replace("00f067aa0ba902b7", "0" * 16),
        EXAMPLE + "\n",
        "cc" + EXAMPLE[2:] + "-" + "x" * 256,
    ],
)
def test_what_is_no_traceparent(text: Any) -> None:
    assert TraceContext.parse(text) is None


@pytest.mark.anyio
async def test_ids_go_through_the_node_in_between() -> None:
    async with meeting() as met, new_node() as third:
        onward, _ = await connect_nodes(met.server, third)
        for node in (met.client, met.server, third):
            node.propagate()
        heard: list[tuple[str, TraceContext | None]] = []

        @met.server.on_call("ask")
        async def ask(call: Call) -> Any:
            heard.append((current_request_id(), current_trace()))
            return await onward.call("ask")

        @third.on_call("ask")
        async def answer(call: Call) -> Any:
            heard.append((current_request_id(), current_trace()))
            return dict(call.headers)

        headers: Any = await met.peer.call(
            "ask", headers={"request-id": "r/1", "traceparent": EXAMPLE}
        )
        (first, trace), (second, deeper) = heard
        assert first == second == "r/1" == headers["request-id"]
        assert trace is not None
        assert deeper is not None
        assert trace.trace_id == deeper.trace_id == EXAMPLE[3:35]
        assert len({trace.span_id, deeper.span_id, EXAMPLE[36:52]}) == 3
        assert current_request_id() == ""
        assert current_trace() is None


@pytest.mark.anyio
@pytest.mark.parametrize("wrong", ["", "x" * 65, "two\nlines", 5, "blank blank"])
async def test_what_may_not_stand_in_a_log_is_not_taken_for_an_id(wrong: Any) -> None:
    async with meeting() as met:
        met.server.propagate()

        @met.server.on_call("id")
        async def own(call: Call) -> str:
            return current_request_id()

        answer = await met.peer.call("id", headers={"request-id": wrong, "traceparent": "junk"})
        assert isinstance(answer, str)
        assert len(answer) == 16
        assert answer != wrong


@pytest.mark.anyio
async def test_what_has_no_headers_is_given_new_ones() -> None:
    async with meeting() as met:
        met.server.propagate()

        @met.server.on_stream("id")
        async def own(stream: Stream) -> None:
            await stream.send(current_request_id().encode())

        assert len(await met.peer.open_stream("id").receive()) == 16


@pytest.mark.anyio
async def test_notes_bring_theirs_to_whoever_reads_them() -> None:
    async with meeting() as met:
        met.server.propagate(notes=True)
        met.client.propagate(notes=True)
        news = met.server.topic("news")
        async with met.peer.subscribe("news") as sub:
            await news.publish(1, headers={"request-id": "r1", "traceparent": EXAMPLE})
            await anext(sub)
            trace = current_trace()
            assert current_request_id() == "r1"
            assert trace is not None
            assert trace.trace_id == EXAMPLE[3:35]
            await news.publish(2)
            await anext(sub)
            assert current_request_id() == "r1"  # published by one who was at work on r1
