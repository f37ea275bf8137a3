"""Calls that run at most once, over sessions that are cut and resume, or end for good."""

from functools import partial
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from parley import Call, Node
from parley._node.errors import OutcomeUnknownError
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.protocol.limits import ONCE_AGAIN
from parley._node.testing import FakeClock
from tests.inspection import once_of
from tests.node.network import eventually, settled, started
from tests.node.resume.roads import road

pytestmark = pytest.mark.anyio


class Work:
    """A handler with `once` that counts, and works until it is released."""

    def __init__(self, node: Node) -> None:
        self.ran: list[Any] = []
        self.finish = anyio.Event()
        node.on_call("work", once=True)(self.run)

    async def run(self, call: Call) -> Any:
        self.ran.append(call.data)
        await self.finish.wait()
        return len(self.ran)


async def test_over_a_cut_it_is_a_call_like_any_other() -> None:
    async with road() as on:
        work = Work(on.server)
        peer = await on.client.connect(on.proxy.address)  # it knows of the handler
        key = IdempotencyKey()
        async with create_task_group() as tasks:
            outcome = await started(tasks, partial(peer.call, "work", 1, once=key))
            await eventually(lambda: work.ran == [1] and peer.core.can_suspend)
            on.proxy.cut()
            await eventually(lambda: peer.resumes == 1)
            again = await started(tasks, partial(peer.call, "work", 1, once=key.value))
            on.proxy.cut()
            work.finish.set()
        assert (outcome, again, work.ran) == ([1], [1], [1])
        await peer.close()


async def test_after_a_session_that_is_over_it_is_asked_again() -> None:
    async with road() as on:
        work = Work(on.server)
        peer = await on.client.connect(on.proxy.address)
        key = IdempotencyKey()
        async with create_task_group() as tasks:
            lost = await started(tasks, partial(peer.call, "work", 1, once=key))
            await eventually(lambda: work.ran == [1] and peer.core.can_suspend)
            on.proxy.stall()
            on.proxy.cut()
            await eventually(lambda: peer.is_suspended)
            (back,) = (each for each in on.server.peers if each is not on.back)
            await eventually(lambda: back.is_suspended)
            back.live.lost("given up")
            peer.live.lost("given up")
            await eventually(lambda: bool(lost))
        assert isinstance(lost[0], OutcomeUnknownError)
        assert once_of(on.server).running == 1
        on.proxy.resume()
        peer = await on.client.connect(on.proxy.address)
        work.finish.set()
        assert await peer.call("work", 1, once=key) == 1
        assert work.ran == [1]
        await peer.close()


async def test_whether_it_may_be_asked_again_is_looked_at_when_there_is_room() -> None:
    """If much data waits for a suspended session, it may be sent minutes later."""
    clock = FakeClock()
    async with road(clock, resume=600.0, write_buffer=1_024) as on:
        work = Work(on.server)
        work.finish.set()
        peer = await on.client.connect(on.proxy.address)
        key = IdempotencyKey()
        assert await peer.call("work", 1, once=key) == 1
        await eventually(lambda: peer.core.can_suspend)
        on.proxy.stall()
        on.proxy.cut()
        await eventually(lambda: peer.is_suspended)
        async with create_task_group() as tasks:
            first = await started(tasks, partial(peer.call, "echo", bytes(2_000), timeout=None))
            again = await started(tasks, partial(peer.call, "work", 1, once=key, timeout=None))
            assert not peer.driver.can_send
            clock.advance(ONCE_AGAIN + 1)
            on.proxy.resume()
            while not (first and again):
                clock.advance(1.0)  # The pause between two attempts, and their duration.
                await settled()
        assert isinstance(again[0], OutcomeUnknownError)
        assert key.is_over
        assert work.ran == [1]
        await peer.close()
