"""Tests of interceptors for incoming and outgoing requests."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from parley import (
    Call,
    CallRefused,
    NamedEvent,
    ParleyError,
    Stream,
    SubscribeRefused,
    SubscribeRequest,
)
from parley._node.errors import ConfigError, StreamResetError
from parley._node.handlers.interceptors import Intercepted, Interceptors, Proceed
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.testing import connect_nodes
from parley._node.trust.policies import AnyPeer
from tests.node.network import eventually, meeting, new_node

pytestmark = pytest.mark.anyio


class Seen:
    """An interceptor that records its requests."""

    def __init__(self) -> None:
        self.ones: list[Intercepted] = []
        self.said: list[Any] = []

    async def __call__(self, one: Intercepted, proceed: Proceed) -> Any:
        self.ones.append(one)
        try:
            self.said.append(await proceed(one))
        except Exception as error:
            self.said.append(error)
            raise
        return self.said[-1]

    @property
    def what(self) -> list[str]:
        return [f"{one.kind} {one.way} {one.name}" for one in self.ones]


# Where they are registered.


def test_there_are_chains_for_what_is_asked_both_ways() -> None:
    chains = Interceptors()
    seen = Seen()
    chains.add(seen, ("call", "event", "note", "stream", "subscribe"), "in")
    chains.add(seen, ("call", "event", "note", "subscribe"), "out")
    assert (chains.call_in, chains.event_out, chains.stream_out) == ([seen], [seen], [])


@pytest.mark.parametrize(
    ("kinds", "way"),
    [((), "in"), (("calls",), "in"), (("call", "x"), "in"), (("call",), "up")],
)
def test_a_kind_or_way_that_does_not_exist_adds_nothing(kinds: Any, way: Any) -> None:
    chains = Interceptors()
    with pytest.raises(ConfigError):
        chains.add(Seen(), kinds, way)
    assert not chains.call_in


@pytest.mark.parametrize("kinds", [("stream",), ("call", "stream")])
def test_streams_are_opened_without_waiting(kinds: Any) -> None:
    chains = Interceptors()
    with pytest.raises(ConfigError, match="plain functions"):
        chains.add(Seen(), kinds, "out")
    assert not chains.call_out


# Calls.


async def test_the_first_is_the_outermost_and_each_may_change_the_request_and_the_answer() -> None:
    async with meeting() as met:
        order = []

        @met.server.intercept("call")
        async def first(one: Intercepted, proceed: Proceed) -> Any:
            order.append("first")
            return [await proceed(one)]

        @met.server.intercept("call")
        async def second(one: Intercepted, proceed: Proceed) -> Any:
            order.append("second")
            one.data += 1
            return await proceed(one)

        @met.server.on_call("double")
        async def double(call: Call[int]) -> int:
            order.append("handler")
            return 2 * call.data

        assert await met.peer.call("double", 20) == [42]
        assert order == ["first", "second", "handler"]


async def test_a_call_is_seen_on_both_sides_with_its_headers() -> None:
    async with meeting() as met:
        ours, theirs = Seen(), Seen()

        @met.client.intercept("call", way="out")
        async def sign(one: Intercepted, proceed: Proceed) -> Any:
            one.headers["signed"] = "yes"
            return await proceed(one)

        met.client.intercept("call", way="out")(ours)
        met.server.intercept("call")(theirs)

        @met.server.on_call("headers")
        async def headers(call: Call) -> Any:
            return dict(call.headers)

        assert await met.peer.call("headers", 1, headers={"a": 1}, timeout=9.0) == {
            "a": 1,
            "signed": "yes",
        }
        (out,), (came,) = ours.ones, theirs.ones
        assert (out.peer, out.timeout, out.data, out.request) == (met.peer, 9.0, 1, None)
        assert (came.peer, came.data, came.timeout) == (met.back, 1, None)
        assert came.request.topic == "headers"
        assert came.headers == {"a": 1, "signed": "yes"}
        assert ours.what == ["call out headers"]
        assert theirs.what == ["call in headers"]


async def test_an_interceptor_refuses_before_the_handler_or_answers_for_it() -> None:
    async with meeting() as met:

        @met.server.intercept("call")
        async def gate(one: Intercepted, proceed: Proceed) -> Any:
            if one.name == "known":
                return "remembered"
            raise CallRefused(ResultCode.OVERLOADED, "later")

        @met.server.on_call("*")
        async def handler(call: Call) -> None:
            pytest.fail("it was not to run")

        assert await met.peer.call("known") == "remembered"
        with pytest.raises(CallRefused) as refused:
            await met.peer.call("other")
        assert (refused.value.code, refused.value.data) == (ResultCode.OVERLOADED, "later")


async def test_interceptors_see_refusals_and_the_handlers_own_errors() -> None:
    async with meeting() as met:
        seen = Seen()
        met.server.intercept("call")(seen)

        @met.server.on_call("fails")
        async def fails(call: Call) -> None:
            raise KeyError("inside")

        @met.server.on_call("closed", allow="admin")
        async def closed(call: Call) -> None:
            pytest.fail("it was not to run")

        for topic, code in (("fails", 16), ("closed", 20)):
            with pytest.raises(CallRefused) as refused:
                await met.peer.call(topic)
            assert refused.value.code == code
        inside, not_allowed = seen.said
        assert isinstance(inside, KeyError)
        assert isinstance(not_allowed, CallRefused)


async def test_an_interceptor_that_fails_is_answered_as_a_handler_that_fails() -> None:
    async with meeting() as met:

        @met.server.intercept("call", "subscribe")
        async def fails(one: Intercepted, proceed: Proceed) -> Any:
            raise KeyError("a bug")

        @met.server.on_call("echo")
        async def echo(call: Call) -> Any:
            return call.data

        met.server.topic("news")
        with pytest.raises(CallRefused) as refused:
            await met.peer.call("echo")
        assert refused.value.code == ResultCode.HANDLER_FAILED
        with pytest.raises(CallRefused) as refused:
            async with met.peer.subscribe("news"):
                pass
        assert refused.value.code == ResultCode.HANDLER_FAILED


async def test_a_call_that_is_made_once_has_one_key_however_often_it_is_tried() -> None:
    async with new_node() as client, new_node() as server:
        theirs = Seen()
        server.intercept("call")(theirs)

        @server.on_call("pay", once=True)
        async def pay(call: Call) -> str:
            return "paid"

        @client.intercept("call", way="out")
        async def twice(one: Intercepted, proceed: Proceed) -> Any:
            return [await proceed(one), await proceed(one)]

        peer, _ = await connect_nodes(client, server)
        answer: Any = await peer.call("pay", once=True)
        assert answer == ["paid", "paid"]
        assert theirs.what == ["call in pay"]  # A remembered call doesn't run.


async def test_streamed_answers_pass_too() -> None:
    async with meeting() as met:
        ours, theirs = Seen(), Seen()
        met.client.intercept("call", way="out")(ours)
        met.server.intercept("call")(theirs)

        @met.server.on_call("count")
        async def count(call: Call[int]) -> AsyncIterator[int]:
            for number in range(call.data):
                yield number

        async with met.peer.call_stream("count", 3) as items:
            assert [item async for item in items] == [0, 1, 2]
        assert ours.what == ["call out count"]
        assert theirs.what == ["call in count"]


async def test_a_streamed_call_that_is_refused_on_its_way_out_is_not_sent() -> None:
    async with meeting() as met:

        @met.client.intercept("call", way="out")
        async def never(one: Intercepted, proceed: Proceed) -> Any:
            raise CallRefused(64)

        with pytest.raises(CallRefused):
            async with met.peer.call_stream("count"):
                pass
        assert len(met.peer.outgoing) == 0


async def test_a_request_that_an_interceptor_did_not_send_is_an_error() -> None:
    async with meeting() as met:

        @met.client.intercept("call", "subscribe", way="out")
        async def nothing(one: Intercepted, proceed: Proceed) -> Any:
            return "forgotten"

        for request in (met.peer.call_stream("count"), met.peer.subscribe("news")):
            with pytest.raises(ParleyError, match="did not call proceed"):
                await request.__aenter__()


async def test_named_events_are_seen() -> None:
    async with meeting() as met:
        seen = Seen()
        met.server.intercept("event")(seen)

        @met.server.on("hello", namespace="greetings")
        async def hello(event: NamedEvent) -> str:
            return "hi"

        reply = await met.peer.emit("hello", namespace="greetings").reply()
        assert reply.data == "hi"
        assert seen.what == ["event in hello"]
        assert isinstance(seen.ones[0].request, NamedEvent)


async def test_named_events_are_seen_on_their_way_out_and_may_be_refused() -> None:
    async with meeting() as met:
        seen, came = Seen(), []

        @met.client.intercept("event", way="out")
        async def gate(one: Intercepted, proceed: Proceed) -> Any:
            if one.name == "secret":
                raise CallRefused(64)
            return None if one.name == "forgotten" else await proceed(one)

        met.client.intercept("event", way="out")(seen)

        @met.server.on("*")
        async def hello(event: NamedEvent) -> str:
            came.append(event.name)
            return "hi"

        await met.peer.emit("told")
        assert (await met.peer.emit("asked").reply(timeout=9.0)).data == "hi"
        replies = [reply.data async for reply in met.peer.emit("all").replies(timeout=8.0)]
        assert replies == ["hi"]
        place = await met.server.listen("memory://events")
        async with met.client.link(place, trust=AnyPeer()) as link:
            assert (await link.emit("linked").reply(timeout=7.0)).data == "hi"
        for emission in (met.peer.emit("secret"), met.peer.emit("secret").reply()):
            with pytest.raises(CallRefused):
                await emission
        with pytest.raises(ParleyError, match="did not call proceed"):
            await met.peer.emit("forgotten")
        told = ["told", "asked", "all", "linked"]
        assert sorted(came) == sorted(told)  # handlers begin in any order
        assert seen.what == [f"event out {name}" for name in told]
        assert seen.ones[0].peer is met.peer
        assert [one.timeout for one in seen.ones[:3]] == [None, 9.0, 8.0]


async def test_who_is_cancelled_inside_is_cancelled_outside() -> None:
    async with meeting() as met:
        ends = []

        @met.server.intercept("call")
        async def around(one: Intercepted, proceed: Proceed) -> Any:
            try:
                return await proceed(one)
            except anyio.get_cancelled_exc_class():
                ends.append("cancelled")
                raise

        @met.server.on_call("slow")
        async def slow(call: Call) -> None:
            await anyio.sleep_forever()

        with anyio.move_on_after(0.05):
            await met.peer.call("slow")
        await eventually(lambda: ends == ["cancelled"])


# Topics.


async def test_subscriptions_are_seen_on_both_sides_and_may_be_refused() -> None:
    async with meeting() as met:
        ours, theirs = Seen(), Seen()
        met.client.intercept("subscribe", way="out")(ours)
        met.server.intercept("subscribe")(theirs)

        @met.server.intercept("subscribe")
        async def gate(one: Intercepted, proceed: Proceed) -> Any:
            if one.data == "no":
                raise CallRefused(ResultCode.NOT_AUTHORISED)
            return [await proceed(one)]

        news = met.server.topic("news")

        @news.on_subscribe
        async def accept(request: SubscribeRequest) -> Any:
            return request.data

        async with met.peer.subscribe("news", "state") as sub:
            assert sub.data == ["state"]
            await news.publish(1)
            assert await anext(sub) == 1
        with pytest.raises(CallRefused) as refused:
            async with met.peer.subscribe("news", "no"):
                pass
        assert refused.value.code == ResultCode.NOT_AUTHORISED
        assert ours.what == ["subscribe out news"] * 2
        assert theirs.what == ["subscribe in news"] * 2
        assert isinstance(theirs.ones[0].request, SubscribeRequest)


async def test_a_node_does_not_get_its_own_notes_back_whatever_an_interceptor_waits_for() -> None:
    async with meeting() as met:
        news = met.server.topic("news")

        @met.server.intercept("subscribe")
        async def slow(one: Intercepted, proceed: Proceed) -> Any:
            answer = await proceed(one)
            news.add_source(met.client.node_id)  # Forwarding begins during the call.
            return answer

        with pytest.raises(SubscribeRefused):
            async with met.peer.subscribe("news"):
                pass


async def test_a_subscription_refused_after_its_acceptance_is_left() -> None:
    async with meeting() as met:
        news = met.server.topic("news")

        @met.client.intercept("subscribe", way="out")
        async def late(one: Intercepted, proceed: Proceed) -> Any:
            await proceed(one)
            raise CallRefused(64)

        with pytest.raises(CallRefused):
            async with met.peer.subscribe("news"):
                pass
        await news.until(lambda: not news.subscribers)


async def test_notes_are_changed_as_they_are_published_and_as_they_come() -> None:
    async with meeting() as met:
        news = met.server.topic("news", keep=10)

        @met.server.intercept("note", way="out")
        async def number(one: Intercepted, proceed: Proceed) -> Any:
            assert one.peer is None
            one.headers["seen"] = True
            one.data *= 2
            return await proceed(one)

        @met.client.intercept("note")
        async def read(one: Intercepted, proceed: Proceed) -> Any:
            assert one.peer is met.peer
            assert one.headers == {"seen": True}
            return await proceed(one) + 1

        async with met.peer.subscribe("news") as sub:
            assert await news.publish(10) == 1
            assert await news.publish(20) == 2
            assert await anext(sub) == 21
            assert sub.number == 1
            assert await sub.next_batch() == [41]
            news.close()
            assert await sub.next_batch() == []


async def test_a_note_whose_interceptor_raises_is_read_and_one_that_is_cancelled_is_not() -> None:
    async with meeting() as met:
        news = met.server.topic("news")
        stuck = True

        @met.client.intercept("note")
        async def read(one: Intercepted, proceed: Proceed) -> Any:
            if one.data == "bad":
                raise ValueError(one.data)
            if stuck:
                await anyio.sleep_forever()
            return await proceed(one)

        async with met.peer.subscribe("news") as sub:
            for note in ("bad", "good"):
                await news.publish(note)
            with pytest.raises(ValueError, match="bad"):
                await anext(sub)
            with anyio.move_on_after(0.02) as waiting:
                await anext(sub)
            assert waiting.cancelled_caught
            stuck = False
            assert await anext(sub) == "good"


async def test_what_a_writer_publishes_is_a_call_and_a_note() -> None:
    async with meeting() as met:
        seen = Seen()
        met.server.intercept("call")(seen)
        met.server.intercept("note", way="out")(seen)
        met.server.topic("room", writers=met.client.node_id)
        await met.peer.publish("room", "hello")
        assert seen.what == ["call in publish:room", "note out room"]


# Streams.


async def test_streams_are_seen_as_long_as_their_handler_runs() -> None:
    async with meeting() as met:
        seen = Seen()
        met.server.intercept("stream")(seen)

        @met.client.intercept("stream", way="out")
        def opened(one: Intercepted, proceed: Any) -> Any:
            assert (one.peer, one.name) == (met.peer, "echo")
            return proceed(one)

        @met.server.on_stream("echo", concurrency=1)
        async def echo(stream: Stream) -> None:
            await stream.send(await stream.receive())

        for _ in range(2):  # the slot was given back
            stream = met.peer.open_stream("echo")
            await stream.send(b"hello")
            assert await stream.receive() == b"hello"
            await stream.aclose()
        await eventually(lambda: len(seen.said) == 2)
        assert seen.what == ["stream in echo"] * 2
        assert isinstance(seen.ones[0].request, Stream)


@pytest.mark.parametrize("intercepted", [False, True])
async def test_how_a_handler_ends_a_stream_is_the_same_inside_of_interceptors(
    intercepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with meeting() as met:
        seen = Seen()
        if intercepted:
            met.server.intercept("stream")(seen)

        @met.server.on_stream("refuses")
        async def refuses(stream: Stream) -> None:
            async with anyio.create_task_group():
                raise CallRefused(64)

        @met.server.on_stream("busy")
        async def busy(stream: Stream) -> None:
            raise CallRefused(ResultCode.OVERLOADED)

        @met.server.on_stream("asks")
        async def asks(stream: Stream) -> None:
            await met.back.call(
                "nothing"
            )  # A refusal by the interceptor, without details for the peer.

        @met.server.on_stream("closed", allow="admin", concurrency=1)
        async def closed(stream: Stream) -> None:
            pytest.fail("it was not to run")

        ends = {}
        for label in ("refuses", "busy", "asks", "closed"):
            with pytest.raises(StreamResetError) as ended:
                await met.peer.open_stream(label).receive()
            ends[label] = ended.value.code
        assert ends == {
            "refuses": CloseCode.REFUSED,
            "busy": CloseCode.OVERLOADED,
            "asks": CloseCode.INTERNAL_ERROR,
            "closed": CloseCode.NOT_AUTHORISED,
        }
        if intercepted:
            seen_types = [type(one) for one in seen.said]
            assert seen_types == [ExceptionGroup, CallRefused, CallRefused, CallRefused]
        failures = [one for one in caplog.messages if one.endswith("failed")]
        assert failures == ["the handler of stream 'asks' failed"]


async def test_a_stream_that_may_not_be_opened_is_not() -> None:
    async with meeting() as met:

        @met.client.intercept("stream", way="out")
        def never(one: Intercepted, proceed: Any) -> Any:
            raise CallRefused(64)

        with pytest.raises(CallRefused):
            met.peer.open_stream("echo")
        assert len(met.peer.streams) == 0
