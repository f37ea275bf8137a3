"""Tests of node/peer/answer_stream.py: answers in items, in order, no faster than they are read."""

from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import pytest
from anyio import create_task_group, fail_after

from parley import Call, CallRefused, CallTimeout
from parley._lbm.padding import parse_padding
from parley._node.errors import ParleyError, PeerClosedError, StreamedAnswerError
from parley._node.peer.answer_stream import AnswerStream
from parley._node.protocol.codes import CHUNK, MAIN_STREAM, SIM, CloseCode, ResultCode
from parley._node.protocol.limits import EVENT_COST
from parley._node.testing import ConnectedNodes
from tests.inspection import chunks_of
from tests.node.network import eventually, meeting, settled, started

pytestmark = pytest.mark.anyio

# What an item of 100 bytes costs on top of them: its heads, and what every event costs.
OVERHEAD = EVENT_COST + 4


class Endless:
    """A handler that yields forever, and records how it ended."""

    def __init__(self, met: ConnectedNodes, topic: str = "endless", size: int = 100) -> None:
        self.yielded = 0
        self.ended = 0
        self._item = bytes(size)
        met.server.on_call(topic)(self.handle)

    async def handle(self, call: Call) -> AsyncIterator[bytes]:
        try:
            while True:
                self.yielded += 1
                yield self._item
        finally:
            self.ended += 1


def offer(met: ConnectedNodes) -> None:
    """`count` yields as many numbers as requested, `echo` answers immediately."""

    @met.server.on_call("count")
    async def count(call: Call) -> AsyncIterator[int]:
        assert isinstance(call.data, int)
        for number in range(call.data):
            yield number

    met.server.on_call("echo")(lambda call: call.data)


@pytest.fixture(params=["memory", "tcp"])
async def met(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncIterator[ConnectedNodes]:
    async with meeting(transport=request.param) as met:
        offer(met)
        yield met


async def drain(answer: AnswerStream, pause: float = 0.0) -> None:
    """Read to the end."""
    async for _ in answer:
        await anyio.sleep(pause)


async def nothing_waits(met: ConnectedNodes) -> None:
    """No id is busy, no handler runs, and the connection still answers."""
    await eventually(lambda: not len(met.peer.outgoing))
    await eventually(lambda: met.back.running_calls == 0)
    assert await met.peer.call("echo", "still here", timeout=5) == "still here"


# Reading.


@pytest.mark.parametrize("number", [0, 1, 2, 3000])
async def test_items_come_in_their_order_and_end(met: ConnectedNodes, number: int) -> None:
    async with met.peer.call_stream("count", number) as answer:
        assert [item async for item in answer] == list(range(number))
        assert [item async for item in answer] == []
        assert answer.result is None
    await nothing_waits(met)


async def test_many_answers_at_once_keep_to_themselves(met: ConnectedNodes) -> None:
    read: dict[int, list[object]] = {}

    async def ask(number: int) -> None:
        async with met.peer.call_stream("count", number, window=500) as answer:
            read[number] = [item async for item in answer]

    async with create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(ask, number)
    assert read == {number: list(range(number)) for number in range(60)}
    await nothing_waits(met)


async def test_a_plain_answer_has_no_items_and_a_result(met: ConnectedNodes) -> None:
    async with met.peer.call_stream("echo", [1]) as answer:
        assert [item async for item in answer] == []
        assert answer.result == [1]


async def test_an_unknown_topic_and_one_that_refuses(met: ConnectedNodes) -> None:
    async with met.peer.call_stream("nobody") as answer:
        with pytest.raises(CallRefused, match="topic not found"):
            await anext(answer)
        with pytest.raises(CallRefused, match="topic not found"):
            await anext(answer)


# Backpressure.


@pytest.mark.parametrize("window", [1, 1000, 50_000, None])
async def test_who_yields_for_ever_is_held_at_the_window(
    met: ConnectedNodes, window: int | None
) -> None:
    """The last item may go beyond it, and one more is made and waits."""
    endless = Endless(met)
    size = window or met.peer.limits.stream_window
    most = -(-size // (100 + OVERHEAD)) + 1
    async with met.peer.call_stream("endless", window=window) as answer:
        await eventually(lambda: endless.yielded == most)
        await settled()
        assert endless.yielded == most
        assert await met.peer.call("echo", 1, timeout=5) == 1
        # Credit for consumed items returns in halves of the window, not earlier.
        halves = 0
        while halves < size / 2:
            assert endless.yielded == most
            assert await anext(answer) == bytes(100)
            halves += 100 + OVERHEAD
        await eventually(lambda: endless.yielded > most)
        await settled()
        assert endless.yielded <= most + -(-halves // (100 + OVERHEAD)) + 1
    await eventually(lambda: endless.ended == 1)
    await nothing_waits(met)


@pytest.mark.slow
async def test_a_handler_that_never_waits_lets_others_run(met: ConnectedNodes) -> None:
    """Even if its caller's window and its transport take all there is."""
    endless = Endless(met)
    async with met.peer.call_stream("endless", window=2**31 - 1) as answer:
        await anext(answer)
        for number in range(4):
            assert await met.peer.call("echo", number, timeout=5) == number
    await eventually(lambda: endless.ended == 1)


@pytest.mark.parametrize("padding", ["padme", "bucket:512"])
async def test_padding_counts_on_both_sides(padding: str) -> None:
    async with meeting(padding=parse_padding(padding)) as met:
        offer(met)
        async with met.peer.call_stream("count", 500, window=2000) as answer:
            assert [item async for item in answer] == list(range(500))
        assert met.peer.is_open


async def test_a_transport_that_takes_nothing_bounds_what_is_made() -> None:
    """A hostile caller names the greatest window for many calls and never reads."""
    write_buffer, handlers, size = 100_000, 20, 10_000
    async with meeting(write_buffer=write_buffer) as met:
        endless = Endless(met, size=size)
        met.back.driver.writable = False
        async with create_task_group() as tasks:

            async def ask() -> None:
                async with met.peer.call_stream("endless", window=2**31 - 1):
                    await anyio.sleep_forever()

            for _ in range(handlers):
                tasks.start_soon(ask)
            await eventually(lambda: met.back.running_calls == handlers)
            for _ in range(5):
                met.back.driver.writable = False
                await settled()
            queued = met.back.core.queued_bytes
            assert write_buffer < queued <= write_buffer + handlers * (size + EVENT_COST)
            made = endless.yielded
            await settled()
            assert endless.yielded == made
            tasks.cancel_scope.cancel()
        met.back.driver.resume_writing()


# Leaving early.


async def test_leaving_cancels_the_handler_and_its_id_is_free(met: ConnectedNodes) -> None:
    endless = Endless(met)
    async with met.peer.call_stream("endless") as answer:
        assert await anext(answer) == bytes(100)
        assert len(met.peer.outgoing) == 1
    await eventually(lambda: endless.ended == 1)
    await nothing_waits(met)
    with pytest.raises(anyio.ClosedResourceError):
        await anext(answer)


async def test_leaving_by_an_exception_and_by_cancellation(met: ConnectedNodes) -> None:
    endless = Endless(met)
    with suppress(ZeroDivisionError):
        async with met.peer.call_stream("endless") as answer:
            async for _ in answer:
                raise ZeroDivisionError
    await eventually(lambda: endless.ended == 1)
    before = endless.yielded
    with anyio.CancelScope() as scope:
        async with met.peer.call_stream("endless"):
            # A handler that never began would have no end.
            await eventually(lambda: endless.yielded > before)
            scope.cancel()
            await anyio.sleep_forever()
    await eventually(lambda: endless.ended == 2)
    await nothing_waits(met)


async def test_leaving_ends_the_wait_of_another_task(met: ConnectedNodes) -> None:
    met.server.on_call("never")(lambda call: anyio.sleep(60))
    async with create_task_group() as tasks:
        async with met.peer.call_stream("never") as answer:
            outcome = await started(tasks, lambda: anext(answer))
            assert not outcome
        await eventually(lambda: bool(outcome))
    assert isinstance(outcome[0], anyio.ClosedResourceError)
    await nothing_waits(met)


async def test_a_handler_that_swallows_its_cancellation_sends_no_more(met: ConnectedNodes) -> None:
    """An item after the final answer would be another call's."""
    ended = anyio.Event()

    @met.server.on_call("stubborn")
    async def stubborn(call: Call) -> AsyncIterator[str]:
        try:
            yield "first"
            with suppress(anyio.get_cancelled_exc_class()):
                await anyio.sleep(60)
            yield "after the end"
            yield "never"
        finally:
            ended.set()

    async with met.peer.call_stream("stubborn") as answer:
        assert await anext(answer) == "first"
    met.peer.outgoing.waiting.next_ids[MAIN_STREAM] = 1
    await eventually(lambda: not len(met.peer.outgoing))
    async with met.peer.call_stream("count", 50, window=100) as answer:
        assert [item async for item in answer] == list(range(50))
    with fail_after(2):
        await ended.wait()
    assert met.peer.dropped == 0
    await nothing_waits(met)


# Ends that are no success.


async def test_a_deadline_while_it_streams(met: ConnectedNodes) -> None:
    endless = Endless(met)
    async with met.peer.call_stream("endless", timeout=0.1, window=1000) as answer:
        with fail_after(5), pytest.raises(CallTimeout):
            await drain(answer, 0.01)
    await eventually(lambda: endless.ended == 1)
    await nothing_waits(met)


async def test_a_refusal_after_some_items(met: ConnectedNodes) -> None:
    @met.server.on_call("some")
    async def some(call: Call) -> AsyncIterator[int]:
        yield 1
        yield 2
        raise CallRefused(99, "enough")

    async with met.peer.call_stream("some") as answer:
        assert [await anext(answer), await anext(answer)] == [1, 2]
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert (caught.value.code, caught.value.data) == (99, "enough")


async def test_a_failing_handler_tells_the_log_and_not_the_caller(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    @met.server.on_call("bad")
    async def bad(call: Call) -> AsyncIterator[int]:
        yield 1
        raise ValueError("the password is swordfish")

    async with met.peer.call_stream("bad") as answer:
        assert await anext(answer) == 1
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert (caught.value.code, caught.value.data) == (16, "the handler failed")
    assert "swordfish" in caplog.text
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("item", [object(), {1, 2}, 2**64, "\ud800"])
async def test_an_item_without_encoding_is_a_failed_handler(
    met: ConnectedNodes, item: object, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []

    @met.server.on_call("odd")
    async def odd(call: Call) -> AsyncIterator[object]:
        try:
            yield 1
            yield item
        finally:
            ended.append(1)

    async with met.peer.call_stream("odd") as answer:
        assert await anext(answer) == 1
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert (caught.value.code, caught.value.data) == (16, "the handler failed")
    assert ended == [1]
    assert "'odd'" in caplog.text
    await nothing_waits(met)


async def test_an_item_that_is_too_large_is_code_21(met: ConnectedNodes) -> None:
    ended: list[int] = []

    @met.server.on_call("large")
    async def large(call: Call) -> AsyncIterator[bytes]:
        try:
            yield b"small"
            yield bytes(met.peer.limits.max_payload)
        finally:
            ended.append(1)

    async with met.peer.call_stream("large") as answer:
        assert await anext(answer) == b"small"
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert caught.value.code == ResultCode.PAYLOAD_TOO_LARGE
    assert ended == [1]
    await nothing_waits(met)


async def test_call_on_a_handler_that_yields(met: ConnectedNodes) -> None:
    endless = Endless(met)
    with pytest.raises(StreamedAnswerError):
        await met.peer.call("endless")
    await eventually(lambda: endless.ended == 1)
    with pytest.raises(StreamedAnswerError):
        await met.peer.call("count", 1)
    # Without items it is an answer as any other.
    assert await met.peer.call("count", 0) is None
    await nothing_waits(met)


async def test_a_call_that_wants_no_answer_ends_a_handler_that_yields(met: ConnectedNodes) -> None:
    endless = Endless(met)
    call = b"\xa1\x15\x67endless"
    met.peer.core.send(MAIN_STREAM, 0, SIM, 1, call)
    await eventually(lambda: endless.ended == 1)
    assert endless.yielded == 1
    await nothing_waits(met)
    assert met.peer.dropped == 0


async def test_an_item_that_cannot_be_read(met: ConnectedNodes) -> None:
    """Of a node that is not ours: the call is cancelled, the connection stays."""
    ended = anyio.Event()

    @met.server.on_call("junk")
    async def junk(call: Call) -> None:
        (incoming,) = met.back.calls.incoming._unanswered.values()
        met.back.core.send(MAIN_STREAM, incoming.async_id, SIM, CHUNK, b"junk", lbm=False)
        try:
            await anyio.sleep(60)
        finally:
            ended.set()

    async with met.peer.call_stream("junk") as answer:
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
        assert caught.value.code == ResultCode.MALFORMED
        with pytest.raises(anyio.ClosedResourceError):
            await anext(answer)
        with fail_after(2):
            await ended.wait()
    await nothing_waits(met)


# The end of the connection.


@pytest.mark.parametrize("how", ["close", "abort", "lost"])
@pytest.mark.parametrize("who", ["caller", "server"])
async def test_the_connection_ends_while_it_streams(
    met: ConnectedNodes, how: str, who: str
) -> None:
    endless = Endless(met)
    ender = met.peer if who == "caller" else met.back
    codes = {"close": CloseCode.GOING_AWAY, "abort": CloseCode.PROTOCOL_ERROR}
    async with create_task_group() as tasks:
        async with met.peer.call_stream("endless", window=1000) as answer:
            await anext(answer)
            if how == "close":
                tasks.start_soon(ender.close, CloseCode.GOING_AWAY)
            elif how == "abort":
                ender.core.abort(ender.backend.now(), CloseCode.PROTOCOL_ERROR, "a test")
                ender.driver.step()
            else:
                ender.driver.ended()
            with fail_after(3), pytest.raises(PeerClosedError) as caught:
                await drain(answer)
            with pytest.raises(PeerClosedError):
                await anext(answer)
        assert caught.value.code == codes.get(how, CloseCode.CONNECTION_LOST)
        await eventually(lambda: endless.ended == 1)
    assert len(met.peer.outgoing) == 0
    assert met.back.running_calls == 0
    with pytest.raises(PeerClosedError):
        async with met.peer.call_stream("endless"):
            pytest.fail("it is closed")


# Misuse.


async def test_reading_without_async_with(met: ConnectedNodes) -> None:
    answer = met.peer.call_stream("count", 1)
    with pytest.raises(ParleyError, match="async with"):
        await anext(answer)
    assert "'count'" in repr(answer)
    assert len(met.peer.outgoing) == 0


async def test_entering_twice(met: ConnectedNodes) -> None:
    answer = met.peer.call_stream("count", 1)
    async with answer:
        with pytest.raises(ParleyError, match=r"cannot call .* again"):
            await answer.__aenter__()
        assert [item async for item in answer] == [0]
    with pytest.raises(ParleyError, match=r"cannot call .* again"):
        await answer.__aenter__()


async def test_two_readers(met: ConnectedNodes) -> None:
    met.server.on_call("never")(lambda call: anyio.sleep(60))
    async with create_task_group() as tasks, met.peer.call_stream("never") as answer:
        outcome = await started(tasks, lambda: anext(answer))
        with pytest.raises(anyio.BusyResourceError):
            await anext(answer)
        assert not outcome
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("window", [0, -1, 2**31])
async def test_a_window_out_of_range(met: ConnectedNodes, window: int) -> None:
    with pytest.raises(ValueError, match="window"):
        async with met.peer.call_stream("count", 1, window=window):
            pytest.fail("it was sent")
    assert len(met.peer.outgoing) == 0


async def test_the_time_to_send_counts(met: ConnectedNodes) -> None:
    met.peer.driver.writable = False
    for _ in range(6):
        met.peer.core.send(MAIN_STREAM, 0, 64, 1, bytes(1 << 20), lbm=False)
    with fail_after(2), pytest.raises(CallTimeout):
        async with met.peer.call_stream("count", 1, timeout=0.02):
            pytest.fail("it was sent")
    assert len(met.peer.outgoing) == 0
    met.peer.driver.resume_writing()


async def test_what_was_left_holds_nothing(met: ConnectedNodes) -> None:
    Endless(met)
    async with met.peer.call_stream("endless") as answer:
        await anext(answer)
        await settled()
        assert chunks_of(answer)
    assert not chunks_of(answer)
    await nothing_waits(met)
    assert not chunks_of(answer)
