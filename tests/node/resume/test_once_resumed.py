"""Calls that are made once, over sessions that are cut and go on, or are over for good."""

from functools import partial
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from node.errors import OutcomeUnknownError
from node.peer.once_key import OnceKey
from parley import Call, Node
from tests.node.network import eventually, started
from tests.node.resume.roads import road

pytestmark = pytest.mark.anyio


class Work:
    """A handler with `once` that counts, and works until it is told."""

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
        key = OnceKey()
        async with create_task_group() as tasks:
            outcome = await started(tasks, partial(peer.call, "work", 1, once=key))
            await eventually(lambda: work.ran == [1])
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
        key = OnceKey()
        async with create_task_group() as tasks:
            lost = await started(tasks, partial(peer.call, "work", 1, once=key))
            await eventually(lambda: work.ran == [1])
            on.proxy.stall()
            on.proxy.cut()
            await eventually(lambda: peer.is_parted)
            (back,) = (each for each in on.server.peers if each is not on.back)
            await eventually(lambda: back.is_parted)
            back.live.lost("given up")
            peer.live.lost("given up")
            await eventually(lambda: bool(lost))
        assert isinstance(lost[0], OutcomeUnknownError)
        assert on.server._once.running == 1
        on.proxy.resume()
        peer = await on.client.connect(on.proxy.address)
        work.finish.set()
        assert await peer.call("work", 1, once=key) == 1
        assert work.ran == [1]
        await peer.close()
