"""Requests over SimProto in both directions: calls, their codes, timeouts, limits."""

import anyio
import pytest

from parley import Call, CallRefused, CallTimeout, PeerClosedError
from parley._node.dialects.limits import DialectLimits
from parley._node.errors import NotSpokenError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError, PayloadTooLargeError
from tests.node.gateways.simproto_sides import raw, served
from tests.node.network import eventually, settled

pytestmark = pytest.mark.anyio


async def test_both_sides_ask() -> None:
    async with served() as sides:

        @sides.client.registrar.on_call("back")
        async def back(call: Call) -> bytes:
            assert call.peer is sides.client.peer
            return b"and back"

        @sides.node.on_call("forth")
        async def forth(call: Call) -> object:
            return await call.peer.call("back")

        assert await sides.client.call("forth") == b"and back"
        assert await sides.back.call("back", timeout=1) == b"and back"
        with pytest.raises(CallRefused):
            await sides.back.call("nobody")


async def test_a_caller_may_give_up() -> None:
    async with served() as sides:
        with pytest.raises(CallTimeout):
            await sides.client.call("wait", timeout=0.02)
        with anyio.move_on_after(0.02):
            await sides.client.call("wait")
        assert await sides.client.call("echo", b"on") == b"on"
        assert sides.back.running_requests == 2
        with pytest.raises(NotSpokenError):
            await sides.client.peer.call("echo", headers={"a": 1})
        with pytest.raises(NotSpokenError, match="cannot use typed results"):
            await sides.client.peer.call("echo", returns=int)
        with pytest.raises(NotSpokenError, match="cannot use idempotent calls"):
            await sides.client.peer.call("echo", once=True)
        with pytest.raises(PayloadTooLargeError):
            await sides.client.call("echo", b"x" * (1 << 20))


async def test_a_response_that_takes_too_long_ends_the_connection() -> None:
    async with served(client_limits=DialectLimits(answer_timeout=0.05)) as sides:
        with pytest.raises(PeerClosedError) as closed:
            await sides.client.call("wait", timeout=None)
        assert closed.value.code == CloseCode.TIMEOUT
        with pytest.raises(PeerClosedError):
            await sides.client.call("echo")
        with pytest.raises(PeerClosedError):
            await sides.client.ping()
        await eventually(lambda: not sides.gateway.peers)
        assert sides.back.running_requests == 0


async def test_callers_wait_for_dialogs() -> None:
    few = DialectLimits(requests=2)
    async with served(limits=few, client_limits=few) as sides:
        answers: list[object] = []

        async def ask(number: int) -> None:
            answers.append(await sides.client.call("echo", b"%d" % number))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(ask, number)
        assert sorted(map(str, answers)) == sorted(str(b"%d" % number) for number in range(20))
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(_refused, sides.client.peer, "wait")
            await settled()
            with pytest.raises(CallTimeout):
                await sides.client.call("echo", timeout=0.02)
            tasks.start_soon(_refused, sides.client.peer, "echo")  # waits for its turn
            await settled()
            sides.back.drop()


async def _refused(peer: object, topic: str) -> None:
    with pytest.raises(PeerClosedError):
        await peer.call(topic)  # type: ignore[attr-defined]  # a SimProtoPeer


async def test_pings() -> None:
    async with served() as sides:
        assert await sides.client.ping() >= 0
        for _ in range(64):
            sides.client.peer.core.ping(sides.client.peer.backend.now())
        with pytest.raises(LimitReachedError):
            await sides.client.ping()


async def test_a_ping_ends_with_the_connection() -> None:
    async with served() as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        (peer,) = set(sides.gateway.peers) - {sides.back}

        async def ping() -> None:
            with pytest.raises(PeerClosedError):
                await peer.ping()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ping)
            assert (await client.read()).type == "ping"
            peer.drop()


async def test_the_end_is_told_to_all() -> None:
    async with served() as sides:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_refused, sides.client.peer, "wait")
            await eventually(lambda: sides.back.running_requests == 1)
            await sides.client.close(CloseCode.GOING_AWAY)
        assert (await sides.client.closed()).code == CloseCode.GOING_AWAY
        await eventually(lambda: sides.back.running_requests == 0)
        assert (await sides.back.closed()).code == CloseCode.CONNECTION_LOST
