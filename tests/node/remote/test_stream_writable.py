"""Tests of node/remote/stream.py: the order of senders, and when sending is refused."""

from collections.abc import Awaitable, Callable

import pytest
from anyio import ClosedResourceError, EndOfStream, create_task_group

from parley._node.remote.stream import (
    EVENTS_PER_TURN,
    SMALL_EVENTS_SIZE,
    WAITING_EVENTS,
    WAITING_SMALL_EVENTS,
    SendLimiter,
)
from tests.node.network import settled, started
from tests.node.remote.test_stream_inbox import Shell

pytestmark = pytest.mark.anyio


def is_free(room: SendLimiter) -> bool:
    """Its word of the moment."""
    return room.is_free


def has_waiting(room: SendLimiter) -> bool:
    """Its word of the moment."""
    return room.has_waiting


def always() -> None:
    """Allow all sending."""


async def test_room_is_given_in_the_order_of_asking() -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        room = SendLimiter(shell.peer, 3, always)
        shell.waiting = WAITING_EVENTS - 1
        await room.wait()
        order: list[int] = []

        def send(number: int) -> Callable[[], Awaitable[object]]:
            async def sending() -> None:
                await room.wait()
                order.append(number)
                shell.waiting += 1
                room.queued += SMALL_EVENTS_SIZE

            return sending

        shell.waiting = WAITING_EVENTS
        room.queued += SMALL_EVENTS_SIZE
        assert not is_free(room)
        for number in range(6):
            await started(tasks, send(number))
        assert has_waiting(room)
        assert shell.watched == 1
        shell.waiting = 0
        assert not is_free(room)  # Before the waiting senders.
        room.changed()
        await settled()
        assert order == [0, 1, 2, 3]
        shell.waiting = 0
        room.changed()
        await settled()
        assert order == list(range(6))
        assert is_free(room)
        assert not has_waiting(room)
        room.changed()


async def test_nobody_waits_for_what_may_not_be_sent() -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        over: list[bool] = []

        def check() -> None:
            if over:
                raise EndOfStream

        room = SendLimiter(shell.peer, 3, check)
        shell.waiting = WAITING_SMALL_EVENTS
        waits = [await started(tasks, room.wait) for _ in range(3)]
        over.append(True)
        room.changed()
        await settled()
        for outcome in waits:
            assert isinstance(outcome[0], EndOfStream)
        shell.waiting = 0
        with pytest.raises(EndOfStream):
            await room.wait()
        over.clear()
        shell.closing = True
        shell.waiting = WAITING_SMALL_EVENTS
        with pytest.raises(ClosedResourceError):
            await room.wait()


async def test_more_small_events_may_wait_than_large_ones() -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        room = SendLimiter(shell.peer, 3, always)
        free = []
        for waiting in range(WAITING_SMALL_EVENTS + 2):
            shell.waiting = waiting
            free.append(room.is_free)
            room.queued += SMALL_EVENTS_SIZE // (WAITING_SMALL_EVENTS + 1)
        assert free == [True] * WAITING_SMALL_EVENTS + [False] * 2
        room.queued += SMALL_EVENTS_SIZE
        shell.waiting = WAITING_EVENTS - 1
        assert is_free(room)
        shell.waiting = WAITING_EVENTS
        assert not is_free(room)
        shell.waiting = 0
        assert is_free(room)
        shell.waiting = WAITING_EVENTS
        assert is_free(room)


async def test_while_too_much_waits_only_what_can_be_written_is_queued() -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        room = SendLimiter(shell.peer, 3, always)
        shell.core.queued_bytes = 1
        assert is_free(room)
        shell.waiting = 1  # as if it had been queued
        assert not is_free(room)
        sent = await started(tasks, room.wait)
        assert shell.watched == 1
        shell.waiting, shell.credit = 0, False
        room.changed()
        await settled()
        assert (sent, shell.watched) == ([], 2)
        shell.credit, shell.writable = True, False
        room.changed()
        await settled()
        assert (sent, shell.watched, len(shell.write_waiters.waiters)) == ([], 2, 1)
        shell.writable = True
        shell.write_waiters.wake()
        await settled()
        assert sent == [None]


async def test_who_waits_for_the_transport_learns_of_the_streams_end() -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        over: list[bool] = []

        def check() -> None:
            if over:
                raise EndOfStream

        room = SendLimiter(shell.peer, 3, check)
        shell.core.queued_bytes, shell.writable = 1, False
        sent = await started(tasks, room.wait)
        assert (sent, len(shell.write_waiters.waiters)) == ([], 1)
        over.append(True)
        room.changed()
        await settled()
        assert isinstance(sent[0], EndOfStream)


async def test_who_always_has_room_lets_others_run() -> None:
    """A reader with a large window that reads as fast as the writer always leaves capacity."""
    async with create_task_group() as tasks:
        room = SendLimiter(Shell(tasks).peer, 3, always)
        ran: list[int] = []
        events = 0

        async def other() -> None:
            ran.append(events)

        tasks.start_soon(other)
        while not ran and events < 8 * EVENTS_PER_TURN:
            await room.wait()
            room.queued += 1
            events += 1
        assert ran  # trio shuffles, so after some turns
        assert ran[0] < 8 * EVENTS_PER_TURN
