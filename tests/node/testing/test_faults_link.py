"""Tests of node/testing/faults.py: nodes connected over a faulty link, and its cleanup."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest
from anyio import create_task_group, fail_after

from parley import ParleyError, PeerClosedError
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FakeClock, FaultyLink, connect_nodes, connected_nodes
from tests.node.network import new_node, other_tasks, settled

pytestmark = pytest.mark.anyio


async def ended_by(fault: Callable[[FaultyLink], None]) -> tuple[int, int]:
    """Cause a fault while a call waits, and return the close codes of both sides."""
    link = FaultyLink()
    with fail_after(5):
        async with connected_nodes(link=link) as pair:
            pair.server.on_call("echo")(lambda call: call.data)
            assert await pair.peer.call("echo", 1) == 1
            fault(link)
            with pytest.raises(PeerClosedError) as caught:
                await pair.peer.call("echo", 2)
            codes = (await pair.peer.closed()).code, (await pair.back.closed()).code
    assert caught.value.code == codes[0]
    return codes


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("after", [4, 12, 40])
async def test_a_flipped_bit_ends_the_connection_with_its_code(after: int, bit: int) -> None:
    codes = await ended_by(lambda link: link.to_server.flip(after, bit))
    assert codes == (CloseCode.BAD_RECORD, CloseCode.BAD_RECORD)


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("after", [0, 1, 30])
async def test_a_cut_is_a_lost_connection(after: int) -> None:
    codes = await ended_by(lambda link: link.to_server.cut(after))
    assert codes == (CloseCode.CONNECTION_LOST, CloseCode.CONNECTION_LOST)


@pytest.mark.usefixtures("leaves_nothing")
async def test_a_stall_is_noticed_by_the_ping() -> None:
    clock = FakeClock()
    link = FaultyLink(clock=clock)
    with fail_after(5):
        async with connected_nodes(link=link, clock=clock) as pair:
            link.to_client.stall()
            await clock.tick(60)
            assert (await pair.peer.closed()).code == CloseCode.TIMEOUT


@pytest.mark.usefixtures("leaves_nothing")
async def test_stall_at_the_end_does_not_delay_the_nodes() -> None:
    """The faults are removed before the nodes close, so that both sides end cleanly."""
    clock = FakeClock()
    for fault in (FaultyLink.stall, lambda link: link.delay(60)):
        link = FaultyLink(clock=clock)
        with fail_after(2):
            async with connected_nodes(link=link, clock=clock) as pair:
                fault(link)
                peer = pair.peer
            assert (await peer.closed()).code == CloseCode.GOING_AWAY


@pytest.mark.usefixtures("leaves_nothing")
async def test_several_connections_over_one_link() -> None:
    with fail_after(5):
        async with FaultyLink() as link, new_node() as server, new_node() as a, new_node() as b:
            server.on_call("echo")(lambda call: call.data)
            peers = [(await connect_nodes(node, server, link=link))[0] for node in (a, b)]
            assert link.connections == 2
            assert [await peer.call("echo", 1) for peer in peers] == [1, 1]
            link.cut()
            assert [(await peer.closed()).code for peer in peers] == [CloseCode.CONNECTION_LOST] * 2
            peer, _ = await connect_nodes(a, server, link=link)
            assert await peer.call("echo", 2) == 2


async def test_it_runs_inside_of_its_async_with() -> None:
    link = FaultyLink()
    with pytest.raises(ParleyError, match="async with"):
        link.streams()
    async with link:
        with pytest.raises(ParleyError, match="already running"):
            await link.__aenter__()
    with pytest.raises(ParleyError, match="async with"):
        link.streams()
    link.cut()
    link.heal()


@pytest.mark.usefixtures("leaves_nothing")
async def test_the_body_s_own_error_comes_through() -> None:
    async def fail() -> None:
        async with FaultyLink() as link:
            link.streams()
            await settled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def cancelled_at(turn: int, function: Callable[[], Awaitable[object]]) -> bool:
    """Run and cancel after so many turns of the loop; return whether it had finished before."""
    done = False

    async def run() -> None:
        nonlocal done
        await function()
        done = True

    async with create_task_group() as tasks:
        tasks.start_soon(run)
        for _ in range(turn):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    return done


async def one_meeting() -> None:
    async with connected_nodes(link=FaultyLink()):
        await settled()


@pytest.mark.usefixtures("leaves_nothing")
async def test_cancelled_at_any_moment_it_leaves_nothing() -> None:
    tasks = other_tasks()
    turns = 0
    with fail_after(30):
        while not await cancelled_at(turns, one_meeting):
            assert other_tasks() == tasks
            turns += 2
    assert turns > 20
