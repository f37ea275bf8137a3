"""Tests of node/remote/stream.py: who waits, in which order, until when."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio import ClosedResourceError, EndOfStream, create_task_group

from parley._node.protocol.errors import LocalProtocolError
from parley._node.remote.stream import READS_PER_TURN, ReceiveQueue
from parley._node.transport.conditions import WriteWaiters
from parley._node.transport.task_scope import current_backend

pytestmark = pytest.mark.anyio


class Shell:
    """A peer of which only what inboxes and rooms ask for is there."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.consumed: list[int] = []
        self.waiting = 0
        self.watched = 0
        self.closing = False
        self.credit = True
        self.writable = True
        self.write_waiters = WriteWaiters()
        backend = current_backend(tasks)
        self.high_water = 0
        self.core = core = SimpleNamespace(
            consume=lambda stream, cost: self.consumed.append(cost),
            queued_bytes=0,
            outbox=SimpleNamespace(waiting=lambda stream: self.waiting),
            has_credit=lambda stream: self.credit,
            notify_writable=self.watch,
        )
        self.peer: Any = SimpleNamespace(
            backend=backend,
            core=core,
            driver=self,
            closed_error=lambda: ClosedResourceError("closing"),
        )

    @property
    def can_send(self) -> bool:
        return self.writable or not self.core.queued_bytes

    def watch(self, stream: int, *, credit: bool) -> None:
        assert credit
        if self.closing:
            raise LocalProtocolError("closing")
        self.watched += 1


@pytest.mark.parametrize("drop", [False, True])
async def test_what_waits_at_the_end_is_read_or_dropped(drop: bool) -> None:
    async with create_task_group() as tasks:
        shell = Shell(tasks)
        inbox: ReceiveQueue[str] = ReceiveQueue(shell.peer, 3)
        inbox.put("a", 65)
        inbox.finish(EndOfStream, drop=False)
        inbox.finish(ClosedResourceError(), drop=drop)
        if not drop:
            assert await inbox.first() == "a"
            inbox.take()
        for _ in range(2):
            with pytest.raises(ClosedResourceError if drop else EndOfStream):
                await inbox.first()
        assert shell.consumed == [65]


async def test_a_reader_of_small_parts_lets_others_run() -> None:
    """One thing may be read as many bytes: it is reads that are counted."""
    async with create_task_group() as tasks:
        inbox: ReceiveQueue[bytes] = ReceiveQueue(Shell(tasks).peer, 3)
        inbox.put(bytes(1000), 1064)
        ran: list[int] = []
        reads = 0

        async def other() -> None:
            ran.append(reads)

        tasks.start_soon(other)
        while not ran and reads < 8 * READS_PER_TURN:
            assert len(await inbox.first()) == 1000  # of which one byte is used
            reads += 1
        assert ran  # trio shuffles, so after some turns
        assert ran[0] < 8 * READS_PER_TURN
