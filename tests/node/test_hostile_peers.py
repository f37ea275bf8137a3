"""Peers that follow the protocol but try to exhaust a node's memory.

The hostile side is a modified node: it announces a window of one byte and never grants credit, or
uses the longest possible labels.
"""

from collections.abc import Collection

import pytest

from parley import Call, CallRefused, Peer, Stream, StreamResetError
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.handlers.registry import LONGEST_NAME
from parley._node.handlers.topic import SubscribeRequest
from parley._node.protocol.codes import CALL, CHUNK, SIM, CloseCode, ResultCode
from parley._node.protocol.limits import LARGEST_CREDIT
from parley._node.protocol.multiplexer import EXTRA_WEIGHT
from tests.node.network import eventually, meeting, settled

pytestmark = pytest.mark.anyio


def never_grant(peer: Peer, spared: Collection[int] = ()) -> None:
    """Make a peer consume data without granting credit."""
    consume = peer.core.consume

    def consume_in_silence(stream: int, cost: int, count: int = 1) -> None:
        if stream in spared:
            consume(stream, cost, count)
        else:
            peer.core.streams.unconsumed -= cost
            peer.core.account.release(cost + EXTRA_WEIGHT * count)

    peer.core.consume = consume_in_silence  # type: ignore[method-assign]  # that is the attack


async def idle(stream: Stream) -> None:
    async for _ in stream.events():
        pass


@pytest.mark.pure
async def test_chunks_behind_a_result_without_credit_do_not_pile_up() -> None:
    async with meeting() as met:

        @met.server.on_call("endless")
        async def endless(call: Call):  # type: ignore[no-untyped-def]  # a generator of bytes
            while True:
                yield bytes(10_000)

        @met.server.on_call("quick")
        async def quick(call: Call) -> None:
            return None

        met.server.on_stream("idle")(idle)
        never_grant(met.peer)
        core = met.peer.core
        stream = core.open_stream("idle", window=1)
        for async_id in (1, 2):  # the first uses all credit, and the second waits
            core.send(stream, async_id, SIM, CALL, encode({keys.TOPIC: "quick"}))
        await settled()
        call = encode({keys.TOPIC: "endless", keys.WINDOW: LARGEST_CREDIT})
        for async_id in range(3, 8):
            core.send(stream, async_id, SIM, CALL, call)
        await settled()
        assert met.back.running_calls == 5
        assert met.back.core.queued_bytes < 100_000


async def test_names_that_are_too_long_fall_under_no_pattern() -> None:
    async with meeting() as met:
        met.server.on_stream("files.*")(idle)

        @met.server.on_call("*")
        async def any_call(call: Call) -> int:
            return len(call.topic)

        longest = "files.".ljust(LONGEST_NAME, "x")
        assert await met.peer.call(longest) == LONGEST_NAME
        with pytest.raises(CallRefused) as refused:
            await met.peer.call(longest + "x")
        assert refused.value.code == ResultCode.TOPIC_NOT_FOUND
        met.peer.open_stream(longest)
        stream = met.peer.open_stream("files." + "x" * 900_000)
        with pytest.raises(StreamResetError) as reset:
            await stream.receive()
        assert reset.value.code == CloseCode.NO_HANDLER
        assert len(met.back.streams) == 1


@pytest.mark.slow
@pytest.mark.pure
@pytest.mark.parametrize("size", [65_536, 1 << 20])
async def test_streams_without_credit_hold_no_more_than_the_write_buffer(size: int) -> None:
    async with meeting(write_buffer=1 << 20) as met:

        @met.server.on_stream("bulk")
        async def bulk(stream: Stream) -> None:
            while True:
                await stream.send_event(64, 1, payload=bytes(size))

        spared: set[int] = set()
        never_grant(met.peer, spared)
        for _ in range(200):
            met.peer.core.open_stream("bulk", window=1)
        await eventually(lambda: len(met.back.streams) == 200)
        # The events of one turn may exceed the limit, if there is credit for them.
        await eventually(lambda: met.back.core.queued_bytes <= (1 << 20) + size)
        # Peers that grant credit are served as usual.
        fast = met.peer.open_stream("bulk")
        spared.add(fast.id)
        for _ in range(20):
            assert len((await fast.receive_event()).payload) == size
        await eventually(lambda: met.back.core.queued_bytes <= (1 << 20) + size)


async def test_a_subscription_that_is_answered_in_chunks_is_malformed() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")

        @topic.on_subscribe
        async def answer_wrongly(request: SubscribeRequest) -> None:
            met.back.core.send(1, request._call.async_id, SIM, CHUNK, encode({keys.DATA: 1}))

        with pytest.raises(CallRefused) as refused:
            async with met.peer.subscribe("x"):
                raise AssertionError("it was accepted")
        assert refused.value.code == ResultCode.MALFORMED
        await eventually(lambda: not topic.subscribers and not len(met.peer.outgoing))


async def test_an_unsubscribe_that_is_followed_by_a_reset_is_answered() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        subscription = met.peer.subscribe("x")
        await subscription.__aenter__()
        (stream,) = met.peer.topics._readers
        core, now = met.peer.core, met.peer.backend.now()
        call = met.peer.outgoing.unsubscribe("x", now, None, lambda: None)
        both = core.data_to_send(now)
        core.reset_stream(stream, CloseCode.CANCELLED)
        both += core.data_to_send(now)
        met.back.driver.received(both)  # the reset is sent before the request is handled
        await eventually(lambda: call.done)
        assert call.code == ResultCode.ACCEPTED
        assert not topic.subscribers
        assert not met.back.core.streams.outbox.held
        await subscription.__aexit__(None, None, None)  # another peer would share its stream
        async with met.peer.subscribe("x"):
            assert len(topic.subscribers) == 1
