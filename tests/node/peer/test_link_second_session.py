"""A link with a suspended session that the other side doesn't know: it opens a new session in
parallel, unless the old one resumes first (section 17).
"""

import logging

import anyio
import pytest

from parley import Backoff, Call, Node, Peer
from parley._node.errors import NotTrustedError, OutcomeUnknownError, PeerClosedError
from parley._node.peer.link import Link
from parley._node.protocol.codes import CloseCode
from parley._node.testing.proxy import FaultyProxy
from parley._node.transport.address import Address
from tests.inspection import connections_of, redirect
from tests.node.network import eventually, new_node, nothing_left, started
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio

RESUME = 30.0


def offer(node: Node) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    @node.on_call("hang")
    async def hang(call: Call) -> None:
        await anyio.sleep_forever()

    @node.on_call("hang once", once=True)
    async def hang_once(call: Call) -> None:
        await anyio.sleep_forever()

    node.topic("numbers", keep=10)


def parted_and_unknown(link: Link) -> bool:
    return link.peer is not None and link.peer.is_suspended and link.peer.live.unknown


async def test_a_server_that_was_restarted_is_back_at_once() -> None:
    seen: list[object] = []
    with anyio.fail_after(RESUME / 3):
        async with (
            serving(offer, resume=RESUME) as server,
            new_node(resume=RESUME) as node,
            node.link(server.address, pauses=QUICK) as link,
            link.subscribe("numbers") as numbers,
        ):

            @link.on_up
            def up(peer: Peer) -> None:
                seen.append("up")

            @link.on_down
            def down(why: Exception) -> None:
                assert link.error is why
                assert isinstance(why, PeerClosedError)
                seen.append(why.code)

            old = await link.ready()
            async with anyio.create_task_group() as tasks:
                failed = await started(tasks, lambda: link.call("hang", timeout=None))
                unknown = await started(tasks, lambda: link.call("hang once", once=True))
                await server.kill()
                await eventually(lambda: old.is_suspended)
                assert link.is_up
                waiting = await started(tasks, lambda: link.call("echo", 0))
                await server.start()
            assert isinstance(failed[0], PeerClosedError)
            assert isinstance(unknown[0], OutcomeUnknownError)
            assert isinstance(waiting[0], PeerClosedError)  # it was asked of the old session
            assert await link.call("echo", 1) == 1
            assert link.peer is not old
            assert (await old.closed()).code == CloseCode.CONNECTION_LOST
            assert server.node is not None
            await server.node.topics["numbers"].publish(7)
            assert await anext(numbers) == 7
            assert (numbers.sessions, numbers.recovered) == (2, False)
            await eventually(lambda: len(node.peers) == 1)
    assert seen == [CloseCode.CONNECTION_LOST, "up"]


async def test_what_is_asked_of_a_session_that_is_unknown_waits_for_the_next() -> None:
    slow = Backoff(first=0.2, longest=0.2)
    async with (
        serving(offer, resume=RESUME) as server,
        new_node(resume=RESUME) as node,
        node.link(server.address, pauses=slow) as link,
    ):
        await link.call("echo")
        await server.kill()
        await server.start()
        await eventually(lambda: parted_and_unknown(link))
        assert link.is_up
        assert await link.call("echo", 1) == 1
        assert (link.sessions, link.attempts) == (2, 0)


async def test_a_session_that_goes_on_after_a_forged_word_is_kept() -> None:
    """Another node uses the address for a while: it truthfully answers that it doesn't know the
    session, and it isn't the expected node.
    """
    downs: list[Exception] = []
    # Another node is dialled again after 15 to 30 s.
    pauses = Backoff(first=0.01, longest=30.0)
    async with (
        serving(offer, resume=RESUME) as server,
        new_node(resume=RESUME) as forger,
        new_node(resume=RESUME) as node,
        FaultyProxy(server.address) as proxy,
        node.link(proxy.address, pauses=pauses) as link,
    ):
        real, forged = (
            Address.parse(one) for one in (server.address, await forger.listen("tcp://127.0.0.1:0"))
        )
        link.on_down(downs.append)
        assert await link.call("echo") is None
        peer = await link.ready()
        for times in (1, 2):
            async with anyio.create_task_group() as tasks:
                hanging = await started(tasks, lambda: link.call("hang", timeout=None))
                redirect(proxy, forged)
                proxy.cut()
                await eventually(lambda: isinstance(link.error, NotTrustedError))
                assert parted_and_unknown(link)
                assert link.attempts > 1
                assert not forger.peers
                redirect(proxy, real)
                assert await link.call("echo", times) == times
                assert not hanging
                tasks.cancel_scope.cancel()
            assert link.peer is peer
            assert (peer.resumes, link.sessions, link.attempts) == (times, 1, 0)
            link.error = None
        assert downs == []
        assert [one.node_id for one in node.peers] == [server.identity.node_id]


async def test_a_dial_that_is_under_way_is_given_up() -> None:
    """The session resumes while the handshake of the new one hangs."""
    async with (
        serving(offer, resume=RESUME) as server,
        new_node(resume=RESUME) as forger,
        new_node(resume=RESUME) as node,
        FaultyProxy(server.address) as proxy,
        FaultyProxy(server.address) as deaf,
    ):
        forged = Address.parse(await forger.listen("tcp://127.0.0.1:0"))
        real = Address.parse(server.address)
        async with node.link(proxy.address, pauses=QUICK) as link:
            assert await link.call("echo") is None
            peer = await link.ready()
            link._places._texts = [deaf.address]  # The parallel dial.
            deaf.stall()
            redirect(proxy, forged)
            proxy.cut()
            await eventually(lambda: deaf.connections == 1 and len(connections_of(node)) == 2)
            redirect(proxy, real)
            peer.redial()
            await eventually(lambda: peer.resumes == 1 and len(connections_of(node)) == 1)
            assert await link.call("echo", 1) == 1
            assert link.peer is peer


async def test_a_session_that_is_unknown_may_end_by_its_time() -> None:
    downs: list[object] = []
    async with (
        serving(offer, resume=RESUME) as server,
        new_node(resume=RESUME) as forger,
        new_node(resume=0.5) as node,
        FaultyProxy(server.address) as proxy,
        node.link(proxy.address, pauses=QUICK) as link,
    ):
        link.on_down(downs.append)
        assert await link.call("echo") is None
        redirect(proxy, Address.parse(await forger.listen("tcp://127.0.0.1:0")))
        proxy.cut()
        await eventually(lambda: bool(downs))
        assert [type(one) for one in downs] == [PeerClosedError]
        redirect(proxy, Address.parse(server.address))
        assert await link.call("echo", 1) == 1
        assert link.sessions == 2


@pytest.mark.parametrize("how", ["left", "cancelled", "node ends"])
async def test_leaving_a_link_whose_session_is_unknown(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # a record would hold the peer that it names
    pauses = Backoff(first=0.004, longest=0.004)

    async def leave(seconds: float) -> None:
        async with serving(offer, resume=0.2) as server, new_node(resume=0.2) as node:
            with anyio.CancelScope() as scope:
                async with node.link(server.address, pauses=pauses) as link:
                    await link.call("echo")
                    await server.kill()
                    await server.start()
                    await eventually(lambda: link.peer is None or link.peer.live.unknown)
                    await anyio.sleep(seconds)
                    if how == "cancelled":
                        scope.cancel()
                    elif how == "node ends":
                        await node.aclose()
            assert link.is_over
            assert not link.is_up
            anew = server.node
            assert anew is not None
            # A handshake that was abandoned at its end is a suspended session at the server.
            await eventually(lambda: all(one.is_suspended for one in anew.peers))
            await eventually(lambda: not node.peers)

    with nothing_left():
        for seconds in (0.0, 0.003, 0.006):
            await leave(seconds)
