"""Tests of node/transport/memory.py: order, limits, ends and cancellation."""

from collections.abc import Awaitable, Callable
from random import Random  # noqa: TID251  (seeded, to choose the cancelled task)

import anyio
import pytest
from anyio import (
    BrokenResourceError,
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    fail_after,
    move_on_after,
    wait_all_tasks_blocked,
)
from anyio.abc import TaskStatus
from anyio.lowlevel import cancel_shielded_checkpoint

from parley._node.transport.memory import MemoryStream, memory_pair

pytestmark = pytest.mark.anyio


async def read_all(stream: MemoryStream) -> bytes:
    return b"".join([data async for data in stream])


async def cancelled_while_waiting(call: Callable[[], Awaitable[object]]) -> None:
    """Start a call, wait until it blocks, and cancel it."""
    ended = False

    async def run() -> None:
        nonlocal ended
        await call()
        ended = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await wait_all_tasks_blocked()
        assert not ended
        tasks.cancel_scope.cancel()
    assert not ended


async def error_while_waiting(
    call: Callable[[], Awaitable[object]], act: Callable[[], Awaitable[None]]
) -> Exception | None:
    """Return the exception of a blocked call after an action."""
    caught: Exception | None = None

    async def run(*, task_status: TaskStatus[None]) -> None:
        nonlocal caught
        task_status.started()
        try:
            await call()
        except Exception as error:
            caught = error

    with fail_after(5):
        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            await wait_all_tasks_blocked()
            await act()
    return caught


async def test_bytes_go_both_ways() -> None:
    left, right = memory_pair()
    await left.send(b"there")
    await right.send(b"back")
    assert await right.receive() == b"there"
    assert await left.receive() == b"back"


async def test_it_is_a_stream_of_bytes_and_not_of_messages() -> None:
    left, right = memory_pair()
    await left.send(b"ab")
    await left.send(b"cdef")
    assert await right.receive(3) == b"abc"
    assert await right.receive() == b"def"


async def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="buffer_size is 0; it must be at least 1"):
        memory_pair(0)
    left, _ = memory_pair()
    with pytest.raises(ValueError, match="at least 1"):
        await left.receive(0)


async def test_a_full_buffer_holds_the_sender() -> None:
    left, right = memory_pair(4)
    sent: list[bytes] = []

    async def send() -> None:
        for item in (b"abcd", b"ef", b"g"):
            await left.send(item)
            sent.append(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        await wait_all_tasks_blocked()
        assert sent == [b"abcd"]
        assert await right.receive(1) == b"a"  # space for one byte, but two are needed
        await wait_all_tasks_blocked()
        assert sent == [b"abcd"]
        assert await right.receive(1) == b"b"
        await wait_all_tasks_blocked()
        assert sent == [b"abcd", b"ef"]
        assert await right.receive() == b"cdef"
        await wait_all_tasks_blocked()
        assert sent == [b"abcd", b"ef", b"g"]
        assert await right.receive() == b"g"


@pytest.mark.parametrize("buffer_size", [1, 7, 100, 65_536])
async def test_an_item_longer_than_the_buffer_goes_in_pieces(buffer_size: int) -> None:
    left, right = memory_pair(buffer_size)
    item = bytes(range(256)) * 4
    received = bytearray()

    async def send() -> None:
        await left.send(item)
        await left.send_eof()

    with fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            async for data in right:
                assert len(data) <= buffer_size
                received += data
    assert received == item


async def test_after_eof_the_rest_is_read_and_the_other_direction_lives() -> None:
    left, right = memory_pair()
    await left.send(b"last")
    await left.send_eof()
    await left.send_eof()
    assert await right.receive() == b"last"
    for _ in range(2):
        with pytest.raises(EndOfStream):
            await right.receive()
    await right.send(b"answer")
    assert await left.receive() == b"answer"
    with pytest.raises(ClosedResourceError):
        await left.send(b"more")


async def test_a_closed_stream_refuses_everything() -> None:
    left, right = memory_pair()
    await right.send(b"unread")
    await left.aclose()
    await left.aclose()
    with pytest.raises(ClosedResourceError):
        await left.send(b"a")
    with pytest.raises(ClosedResourceError):
        await left.receive()
    with pytest.raises(ClosedResourceError):
        await left.send_eof()


async def test_the_other_end_of_a_closed_stream_reads_the_rest() -> None:
    left, right = memory_pair()
    await left.send(b"last")
    await left.aclose()
    with pytest.raises(BrokenResourceError):
        await right.send(b"a")
    assert await right.receive() == b"last"
    with pytest.raises(EndOfStream):
        await right.receive()
    await right.send_eof()
    await right.aclose()


async def test_closing_wakes_those_who_wait_at_the_other_end() -> None:
    left, right = memory_pair(1)
    await right.send(b"x")
    assert isinstance(await error_while_waiting(right.receive, left.send_eof), EndOfStream)
    error = await error_while_waiting(lambda: right.send(b"y"), left.aclose)
    assert isinstance(error, BrokenResourceError)


async def test_closing_wakes_those_who_wait_at_this_end() -> None:
    left, _right = memory_pair(1)
    assert isinstance(await error_while_waiting(left.receive, left.aclose), ClosedResourceError)
    left, _right = memory_pair(1)
    await left.send(b"x")
    error = await error_while_waiting(lambda: left.send(b"y"), left.aclose)
    assert isinstance(error, ClosedResourceError)


async def test_one_task_sends_and_one_receives_at_a_time() -> None:
    left, right = memory_pair(1)

    async def second_receive() -> None:
        with pytest.raises(BusyResourceError):
            await left.receive()
        await right.send(b"x")

    assert await error_while_waiting(left.receive, second_receive) is None
    await left.send(b"x")

    async def second_send() -> None:
        with pytest.raises(BusyResourceError):
            await left.send(b"z")
        with pytest.raises(BusyResourceError):
            await left.send_eof()
        assert await right.receive() == b"x"

    assert await error_while_waiting(lambda: left.send(b"y"), second_send) is None
    assert await right.receive() == b"y"


async def test_a_cancelled_send_of_what_fits_sends_nothing() -> None:
    left, right = memory_pair(4)
    await left.send(b"abc")
    await cancelled_while_waiting(lambda: left.send(b"1234"))
    with move_on_after(0):
        await left.send(b"5")
    await left.send(b"d")
    await left.send_eof()
    assert await read_all(right) == b"abcd"


async def test_a_cancelled_send_of_more_has_sent_a_beginning() -> None:
    left, right = memory_pair(4)
    await cancelled_while_waiting(lambda: left.send(b"abcdefgh"))
    await left.send_eof()
    assert await read_all(right) == b"abcd"


async def test_a_cancelled_close_has_closed() -> None:
    left, right = memory_pair()
    with move_on_after(0):
        await left.aclose()
    with pytest.raises(ClosedResourceError):
        await left.receive()
    with pytest.raises(EndOfStream):
        await right.receive()


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_or_doubled_whatever_is_cancelled(seed: int) -> None:
    """Both sides are cancelled at random: exactly the items reported as sent arrive."""
    chance = Random(seed)
    left, right = memory_pair(8)
    sent, received = bytearray(), bytearray()

    async def attempt(call: Callable[[], Awaitable[None]]) -> None:
        # A cancelled scope around a call that can finish immediately or after a few turns.
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_later, scope, chance.randrange(4))
                await call()
                tasks.cancel_scope.cancel()

    async def cancel_later(scope: anyio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await cancel_shielded_checkpoint()
        scope.cancel()

    async def send() -> None:
        for number in range(150):
            item = bytes([number]) * chance.randint(1, 8)

            async def send_one(item: bytes = item) -> None:
                await left.send(item)
                sent.extend(item)

            await attempt(send_one)
        await left.aclose()

    async def receive_one() -> None:
        received.extend(await right.receive(chance.randint(1, 10)))

    async def receive() -> None:
        ended = False
        while not ended:
            try:
                await attempt(receive_one)
            except* EndOfStream:
                ended = True

    with fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            tasks.start_soon(receive)
    assert received == sent
    assert len(sent) > 50
