"""The obstacles that a failed Dial can name: no node can make others avoid working servers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.errors import HandshakeError, TunnelRefusedError
from parley._node.federation.limits import AVOIDED, LONGEST_TEXT
from parley._node.federation.paths import Obstacle
from parley._node.handlers.registry import Entry
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL, CloseCode, ResultCode
from parley._node.remote.live_connection import MEASURE_INTERVAL
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.testing import connect_nodes
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.tunnel_transport import TunnelWriter
from tests.inspection import path_finder_of
from tests.node.network import config
from tests.node.server.ring import Servers, ring, servers
from tests.node.server.test_federation_reach import logged_in, ticking
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

TRACE = bytes(16)


def refuses_with(cells: dict[int, Value]) -> Callable[[Stream], Awaitable[None]]:
    """Return a handler of `tunnel` streams that gives the same answer to each Dial."""

    async def serve(stream: Stream) -> None:
        event = await stream.receive_event()
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode(cells))

    return serve


def let_refuse(four: Servers, number: int, cells: dict[int, Value]) -> None:
    four.nodes[number].handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, refuses_with(cells))


def let_serve_nothing(four: Servers, number: int) -> None:
    four.nodes[number].handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, does_not_answer)


async def test_short_deadlines_of_an_account_harm_no_server() -> None:
    async with servers(4, ring(4), accounts="any") as four:
        await four.until(four.know_all)
        target = four.nodes[2].node_id
        async with Node(Identity.create(), config=config(), clock=four.clock) as account:
            home, _ = await connect_nodes(account, four.nodes[0])
            for timeout in (0.12, 0.25, 0.45):
                with pytest.raises(TunnelRefusedError) as caught:
                    await dial_tunnel(home, to=[target], trace=TRACE, timeout=timeout)
                assert caught.value.code == ResultCode.DEADLINE_EXCEEDED
            assert not avoided(four, 0)
            await four.federations[0].reach(target)


@pytest.mark.parametrize("said", [{keys.HOP: 1}, {keys.HOP: 0}, {}])
async def test_server_cannot_blame_earlier_servers(said: dict[int, Value]) -> None:
    async with servers(4, ring(4)) as four:
        await four.until(four.know_all)
        let_refuse(four, 2, {keys.CODE: ResultCode.OVERLOADED, **said})
        with pytest.raises(TunnelRefusedError) as caught:
            await four.federations[0].reach(four.nodes[2].node_id)
        assert (caught.value.code, caught.value.hop) == (ResultCode.OVERLOADED, 2)
        assert not avoided(four, 0)


@pytest.mark.parametrize("code", [CloseCode.OVERLOADED, CloseCode.NOT_AUTHORISED])
async def test_reset_blames_the_link_to_its_sender(code: CloseCode) -> None:
    async def serve(stream: Stream) -> None:
        await stream.receive_event()
        stream.reset(code)

    async with servers(3, ring(3)[:2]) as three:
        await three.until(three.know_all)
        three.nodes[2].handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, serve)
        peer = three.federations[0].links[0].peer
        assert peer is not None
        path = [node.node_id for node in three.nodes]
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(peer, path=path, trace=TRACE, timeout=5)
        assert (caught.value.code, caught.value.hop) == (ResultCode.UNREACHABLE, 1)


async def test_long_reason_is_truncated() -> None:
    async with servers(3, ring(3)[:2]) as three:
        await three.until(three.know_all)
        code = ResultCode.TOPIC_NOT_FOUND
        let_refuse(three, 2, {keys.CODE: code, keys.TEXT: "x" * 500_000, keys.HOP: 2})
        peer = three.federations[0].links[0].peer
        assert peer is not None
        path = [node.node_id for node in three.nodes]
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(peer, path=path, trace=TRACE, timeout=5)
        assert (caught.value.code, caught.value.hop) == (code, 2)
        assert caught.value.text == "x" * LONGEST_TEXT


SLOW = 0.2  # seconds in each direction: a round trip of four hop allowances


async def does_not_answer(stream: Stream) -> None:
    await stream.receive_event()
    await stream.live.closed()


@asynccontextmanager
async def slow_links(four: Servers) -> AsyncIterator[None]:
    """Delay the links between four servers in a ring, after their round trips were measured as
    short.
    """
    ways = [four.network.way(four.nodes[one], four.nodes[other]) for one, other in ring(4)]
    for way in ways:
        way.delay(SLOW)
    await four.clock.tick(MEASURE_INTERVAL)
    yield
    for way in ways:
        way.delay(0.0)
    await four.clock.tick(MEASURE_INTERVAL)


def avoided(four: Servers, number: int) -> set[Obstacle]:
    """Return the obstacles that all Dials of a server avoid now."""
    return set(path_finder_of(four.federations[number]).avoided.at(four.clock.now()))


def nothing_was_avoided(four: Servers) -> bool:
    """Return whether no server has added an obstacle for all its Dials."""
    finders = [path_finder_of(federation) for federation in four.federations]
    return not any(finder.avoided.version for finder in finders)


def let_account(account: Node, serve: Callable[[Stream], Awaitable[None]]) -> None:
    """Let an account handle the tunnels that lead to it."""
    account.handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, serve)


@asynccontextmanager
async def accomplices(four: Servers) -> AsyncIterator[tuple[Peer, Node]]:
    """Return the session of an account with server 0, and an account logged in at server 2."""
    caller, target = (Node(Identity.create(), config=config(), clock=four.clock) for _ in range(2))
    async with caller, target:
        await four.until(four.know_all)
        four.network.add(caller)
        dial = four.network.dial_from(caller)
        home = await dial(four.network.address(four.nodes[0]))
        await logged_in(four, target, 2)
        yield home, target


@pytest.mark.parametrize("seconds", [1.2, 3.0, 6.3, 9.0, 30.0])
async def test_account_silent_over_slow_links_harms_no_server(seconds: float) -> None:
    async with servers(4, ring(4), accounts="any") as four, accomplices(four) as (home, silent):
        let_account(silent, does_not_answer)
        async with slow_links(four):
            to = [four.nodes[2].node_id, silent.node_id]

            async def dial() -> None:
                with pytest.raises(TunnelRefusedError):
                    await dial_tunnel(home, to=to, trace=TRACE, timeout=seconds)

            await ticking(four, dial())
            assert nothing_was_avoided(four)


@pytest.mark.parametrize("seconds", [1.2, 3.0, 6.3])
async def test_account_with_short_deadlines_on_slow_links_harms_no_server(seconds: float) -> None:
    async with servers(4, ring(4), accounts="any") as four, accomplices(four) as (home, _):
        let_serve_nothing(four, 2)
        async with slow_links(four):
            target = four.nodes[2].node_id

            async def dial() -> None:
                with pytest.raises(TunnelRefusedError):
                    await dial_tunnel(home, to=[target], trace=TRACE, timeout=seconds)

            await ticking(four, dial())
            for number in range(4):
                assert all(target in one for one in avoided(four, number) if isinstance(one, tuple))
                assert not {one for one in avoided(four, number) if isinstance(one, NodeId)}


async def test_a_server_that_is_silent_over_slow_links_is_blamed_alone() -> None:
    async with servers(4, ring(4)) as four:
        await four.until(four.know_all)
        let_serve_nothing(four, 2)
        async with slow_links(four):
            ids = [node.node_id for node in four.nodes]

            async def dial() -> int:
                with pytest.raises(TunnelRefusedError) as caught:
                    await four.federations[0]._dialer.dial([ids[2]], trace=TRACE, timeout=12.0)
                return caught.value.code

            # The first Dial shows that the round trip has grown, and is not evidence of a failure.
            assert await ticking(four, dial()) == ResultCode.DEADLINE_EXCEEDED
            assert nothing_was_avoided(four)
            await four.clock.tick(AVOIDED)
            assert await ticking(four, dial()) == ResultCode.UNREACHABLE
            steps = {(ids[a], ids[b]) for a, b in ((1, 2), (2, 1), (3, 2), (2, 3))}
            assert avoided(four, 0) == steps


@sweep("hop", [0, 1, 2, 3, 4, 7, None])
@sweep(
    "code",
    [
        ResultCode.UNREACHABLE,
        ResultCode.NOT_AUTHORISED,
        ResultCode.OVERLOADED,
        ResultCode.DEADLINE_EXCEEDED,
    ],
)
async def test_an_account_blames_no_server(code: int, hop: int | None) -> None:
    async with servers(4, ring(4), accounts="any") as four, accomplices(four) as (home, liar):
        said = {} if hop is None else {keys.HOP: hop}
        let_account(liar, refuses_with({keys.CODE: code, **said}))
        to = [four.nodes[2].node_id, liar.node_id]
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(home, to=to, trace=TRACE, timeout=6)
        assert caught.value.code == code
        assert caught.value.hop in (2, 3)
        assert nothing_was_avoided(four)


async def test_account_that_accepts_and_sends_garbage_harms_no_server() -> None:
    async def serve(stream: Stream) -> None:
        assert isinstance(stream, TunnelStream)
        event = await stream.receive_event()
        accepted = encode({keys.CODE: ResultCode.ACCEPTED})
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=accepted)
        TunnelWriter(stream, lambda cost: None).write(bytes(range(200)))
        await stream.live.closed()

    async with servers(4, ring(4), accounts="any") as four, accomplices(four) as (_, liar):
        let_account(liar, serve)

        async def reach() -> None:
            with pytest.raises(HandshakeError):
                await four.federations[0].reach(four.nodes[2].node_id, liar.node_id)

        await ticking(four, reach())
        assert nothing_was_avoided(four)
