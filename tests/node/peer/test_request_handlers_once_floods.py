"""Tests of calls that are made once against peers that ask for too much."""

from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import create_task_group

from parley import Call, Peer
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.messaging.idempotency import ONCE_ID_WEIGHT, ONCE_WEIGHT
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.limits import ONCE_RESULT
from parley._node.testing import FakeClock, connect_nodes
from tests.inspection import once_of
from tests.node.network import eventually, meeting, new_node, settled, started

pytestmark = pytest.mark.anyio


async def outcome(peer: Peer, topic: str, data: Any = None, **options: Any) -> Any:
    """The answer, or the code of refusal."""
    try:
        return await peer.call(topic, data, **options)
    except CallRefused as refused:
        return refused.code


async def test_a_flood_of_keys_meets_the_bound_and_hurts_nobody_else() -> None:
    clock = FakeClock()
    async with meeting(once_results=50, clock=clock) as met, new_node() as other:
        ran: list[Any] = []
        met.server.on_call("work", once=True)(lambda call: ran.append(call.data))
        peer, _ = await connect_nodes(met.client, met.server)
        keys = [number.to_bytes(16, "big") for number in range(200)]
        for key in keys[:50]:
            assert await outcome(peer, "work", once=key) is None
        refused = [await outcome(peer, "work", once=key) for key in keys[50:]]
        assert refused == [ResultCode.OVERLOADED] * 150
        assert len(ran) == 50
        assert (
            await outcome(peer, "work", once=keys[0]) is None
        )  # Remembered calls stay remembered.
        assert await outcome(peer, "work") is None  # and any other call may run
        good, _ = await connect_nodes(other, met.server)
        assert await outcome(good, "work", once=keys[0]) is None
        assert len(ran) == 52
        # Calls younger than ten minutes are never discarded for it; older ones are.
        for seconds, code in ((599, ResultCode.OVERLOADED), (1, None)):
            await peer.close()
            clock.advance(seconds)
            peer, _ = await connect_nodes(met.client, met.server)
            assert await outcome(peer, "work", once=keys[60]) == code
        assert len(once_of(met.server)) == 1


async def test_a_flood_of_answers_meets_the_bound() -> None:
    room = 2**20
    async with meeting(once_peer_memory=room) as met:
        met.server.on_call("work", once=True)(lambda call: bytes(60_000))
        peer, _ = await connect_nodes(met.client, met.server)
        answers = [await outcome(peer, "work", once=True) for _ in range(30)]
        kept = sum(type(answer) is bytes for answer in answers)
        assert answers[kept:] == [ResultCode.OVERLOADED] * (30 - kept)
        assert room - 3 * ONCE_RESULT < once_of(met.server).held <= room


async def test_many_node_ids_share_one_bound() -> None:
    room = 256 * 1024
    async with new_node(once_memory=room) as server:
        server.on_call("work", once=True)(lambda call: bytes(60_000))
        answers = []
        for _ in range(8):
            async with new_node() as client:
                peer, _ = await connect_nodes(client, server)
                answers.append(await outcome(peer, "work", once=True))
        kept = sum(type(answer) is bytes for answer in answers)
        assert 1 < kept < 8
        assert answers[kept:] == [ResultCode.OVERLOADED] * (8 - kept)
        assert once_of(server).held <= room


async def test_more_than_there_is_room_for_run_one_after_the_other() -> None:
    """Each running call has memory reserved for its answer; the others wait, and are not
    refused.
    """
    async with meeting(once_peer_memory=2**19) as met:
        running = most = 0

        @met.server.on_call("work", once=True)
        async def work(call: Call) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1
            return call.data

        peer, _ = await connect_nodes(met.client, met.server)
        answers: list[Any] = []

        async def ask(number: int) -> None:
            answers.append(await outcome(peer, "work", number, once=True))

        async with create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, number)
        assert sorted(answers) == list(range(200))
        assert 2 <= most <= 2**19 // ONCE_RESULT
        assert once_of(met.server).running == 0


async def test_those_in_line_end_with_their_deadline_and_their_session() -> None:
    async with meeting(once_peer_memory=128 * 1024) as met:
        finish = anyio.Event()
        ran: list[Any] = []

        @met.server.on_call("work", once=True)
        async def work(call: Call) -> Any:
            ran.append(call.data)
            await finish.wait()
            return call.data

        first, back = await connect_nodes(met.client, met.server)
        second, _ = await connect_nodes(met.client, met.server)
        async with create_task_group() as tasks:
            runs = await started(tasks, partial(outcome, second, "work", 0, once=True))
            assert ran == [0]
            late = await started(
                tasks, partial(outcome, second, "work", 1, once=True, timeout=0.02)
            )
            lost = await started(tasks, partial(outcome, first, "work", 2, once=True))
            waits = await started(tasks, partial(outcome, second, "work", 3, once=True))
            await eventually(lambda: late == [ResultCode.DEADLINE_EXCEEDED])
            back.live.drop(CloseCode.OVERLOADED)
            await eventually(lambda: bool(lost))
            assert isinstance(lost[0], PeerClosedError)
            finish.set()
        assert (runs, waits) == ([0], [3])
        assert ran == [0, 3]


async def test_a_line_for_which_no_room_comes_is_refused() -> None:
    async with meeting(once_peer_memory=128 * 1024) as met:
        finish = anyio.Event()

        @met.server.on_call("work", once=True)
        async def work(call: Call) -> bytes:
            await finish.wait()
            return bytes(60_000)

        peer, _ = await connect_nodes(met.client, met.server)
        async with create_task_group() as tasks:
            outcomes = [
                await started(tasks, partial(outcome, peer, "work", once=True)) for _ in range(6)
            ]
            assert outcomes == [[]] * 6
            finish.set()
        assert outcomes == [[bytes(60_000)]] + [[ResultCode.OVERLOADED]] * 5


async def test_the_same_key_at_once_from_many_connections_runs_once() -> None:
    async with new_node() as client, new_node() as server:
        ran: list[Any] = []

        @server.on_call("work", once=True)
        async def work(call: Call) -> int:
            ran.append(call.data)
            await anyio.lowlevel.checkpoint()
            return len(ran)

        peers = []
        for _ in range(5):
            peer, _ = await connect_nodes(client, server)
            peers.append(peer)
        answers: list[Any] = []

        async def ask(peer: Peer, key: bytes) -> None:
            answers.append((key, await outcome(peer, "work", once=key)))

        keys = [bytes([number] * 16) for number in range(10)]
        async with create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(ask, peers[number % 5], keys[number % 10])
        assert len(ran) == 10
        assert len(set(answers)) == 10
        assert len(answers) == 200


async def test_calls_that_are_cancelled_at_once_leave_nothing() -> None:
    async with meeting() as met:
        begun, ended = 0, 0

        @met.server.on_call("work", once=True)
        async def work(call: Call) -> None:
            nonlocal begun, ended
            begun += 1
            try:
                await anyio.sleep_forever()
            finally:
                ended += 1

        peer, back = await connect_nodes(met.client, met.server)
        for number in range(50):
            with anyio.move_on_after(0):
                await peer.call("work", number, once=True)
        async with create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(partial(peer.call, "work", number, once=True))
                if number % 10 == 0:
                    await settled()
            tasks.cancel_scope.cancel()
        await eventually(lambda: back.running_calls == 0)
        await eventually(lambda: once_of(met.server).running == 0)
        assert begun == ended
        memory = once_of(met.server)
        assert memory.held == (ONCE_ID_WEIGHT if len(memory) else 0) + sum(
            ONCE_WEIGHT + len(call.answer[2])
            for asker in memory.askers.values()
            for call in asker.calls.values()
            if call.answer is not None
        )
        await peer.close()
        await eventually(lambda: back.core.account.held == 0)
