"""Whom a failed Dial may blame: nobody can have others gone around that are there."""

from collections.abc import Awaitable, Callable

import pytest

from crypto.identity import Identity
from lbm import keys
from lbm.codec import Value, encode
from node.errors import TunnelRefusedError
from node.federation.limits import LONGEST_TEXT
from node.handlers.registry import Entry
from node.node import Node
from node.protocol.codes import TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL, CloseCode, ResultCode
from node.streams.stream import Stream
from node.tunnels.dialling import dial_tunnel
from tests.node.network import config, introduce
from tests.node.server.ring import Servers, ring, servers

TRACE = bytes(16)


def refuses_with(cells: dict[int, Value]) -> Callable[[Stream], Awaitable[None]]:
    """What serves streams `tunnel` by the same answer to each Dial."""

    async def serve(stream: Stream) -> None:
        event = await stream.receive_event()
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode(cells))

    return serve


def let_refuse(four: Servers, number: int, cells: dict[int, Value]) -> None:
    four.nodes[number].handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, refuses_with(cells))


async def test_the_short_deadlines_of_an_account_harm_nobody(anyio_backend: str) -> None:
    async with servers(4, ring(4), accounts="any") as four:
        await four.until(four.know_all)
        target = four.nodes[2].node_id
        async with Node(Identity.create(), config=config(), clock=four.clock) as account:
            home, _ = await introduce(account, four.nodes[0])
            for timeout in (0.12, 0.25, 0.45):
                with pytest.raises(TunnelRefusedError) as caught:
                    await dial_tunnel(home, to=[target], trace=TRACE, timeout=timeout)
                assert caught.value.code == ResultCode.DEADLINE_EXCEEDED
            assert not four.federations[0]._directory._finder.avoided.at(four.clock.now())
            await four.federations[0].reach(target)


@pytest.mark.parametrize("said", [{keys.HOP: 1}, {keys.HOP: 0}, {}])
async def test_a_server_blames_nobody_before_it(said: dict[int, Value], anyio_backend: str) -> None:
    async with servers(4, ring(4)) as four:
        await four.until(four.know_all)
        let_refuse(four, 2, {keys.CODE: ResultCode.OVERLOADED, **said})
        with pytest.raises(TunnelRefusedError) as caught:
            await four.federations[0].reach(four.nodes[2].node_id)
        assert (caught.value.code, caught.value.hop) == (ResultCode.OVERLOADED, 2)
        assert not four.federations[0]._directory._finder.avoided.at(four.clock.now())


@pytest.mark.parametrize("code", [CloseCode.OVERLOADED, CloseCode.NOT_AUTHORISED])
async def test_a_reset_blames_the_link_to_whoever_sent_it(
    code: CloseCode, anyio_backend: str
) -> None:
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


async def test_a_long_reason_is_cut_on_its_way(anyio_backend: str) -> None:
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
