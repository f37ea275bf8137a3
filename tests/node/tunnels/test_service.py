"""Tests of answers to a Dial, and of cleaning up Dials whose origin is gone."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import ParleyError, StreamResetError, TunnelRefusedError
from parley._node.federation.limits import TUNNELS_OF_LINK
from parley._node.protocol.codes import DIAL, TUNNEL, CloseCode, ResultCode
from parley._node.testing import FakeClock
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import AccountDialPolicy, IncomingDial
from parley._node.tunnels.service import DIAL_WAIT
from tests.inspection import error_code_of, received_bytes_of
from tests.node.network import PATIENCE, eventually, meeting, started
from tests.node.tunnels.tunnel_rows import RawEnd, Row, end_raw, row

TRACE = bytes(16)
DIAL_TO_NOBODY = encode({keys.TRACE: TRACE, keys.DEADLINE_MS: 9_000, keys.TO: [bytes(32)]})


class Hanging:
    """A policy that never decides."""

    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = 0

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[None]:
        self.asked += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled += 1
        yield None


async def refused(made: Row, timeout: float = PATIENCE) -> tuple[int, int | None]:
    with pytest.raises(TunnelRefusedError) as caught:
        await made.open(timeout)
    return caught.value.code, caught.value.hop


async def test_what_a_switch_says_is_answered_with_its_place(anyio_backend: str) -> None:
    async with row(5) as made:
        made.switches[0].ways.clear()
        assert await refused(made) == (ResultCode.TOPIC_NOT_FOUND, 0)
        made.switches[0].ways[(made.target.node_id,)] = made.path
        made.links[2][0].live.lost("a test")
        assert await refused(made) == (ResultCode.UNREACHABLE, 1)


async def test_a_peer_that_knows_nothing_of_tunnels(anyio_backend: str) -> None:
    async with row(4) as made:
        del made.target.handlers.reserved["tunnel"]
        assert await refused(made) == (ResultCode.UNREACHABLE, 1)
    async with meeting() as met:
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(met.peer, to=[met.server.node_id], trace=TRACE, timeout=5)
        assert (caught.value.code, caught.value.hop) == (ResultCode.UNREACHABLE, None)
        await met.server.aclose()
        with pytest.raises(TunnelRefusedError):
            await dial_tunnel(met.peer, to=[met.server.node_id], trace=TRACE, timeout=5)


async def test_the_deadline_is_kept_by_whoever_meets_it(anyio_backend: str) -> None:
    async with row(4) as made:
        switch = Hanging()
        made.nodes[2].handlers.reserved.pop("tunnel")
        made.nodes[2].connections.serve_tunnels(switch)
        assert await refused(made, timeout=0.4) == (ResultCode.DEADLINE_EXCEEDED, 1)
        await eventually(lambda: switch.cancelled == 1)
        assert await refused(made, timeout=0.05) == (ResultCode.DEADLINE_EXCEEDED, None)
        assert switch.asked == 1  # no time was left


async def test_who_gives_up_leaves_nothing_on_the_way(anyio_backend: str) -> None:
    async with row(5) as made:
        switch = Hanging()
        made.nodes[3].handlers.reserved.pop("tunnel")
        made.nodes[3].connections.serve_tunnels(switch)
        async with anyio.create_task_group() as tasks:
            await started(tasks, made.open)
            await eventually(lambda: switch.asked == 1)
            tasks.cancel_scope.cancel()
        await eventually(lambda: switch.cancelled == 1)
        await eventually(lambda: not any(one.open for one in made.switches))
        ends = [peer for pair in made.links for peer in pair]
        await eventually(lambda: not any(len(peer.streams) for peer in ends))


async def test_who_may_dial_no_more_has_no_tunnels(anyio_backend: str) -> None:
    async with row(4) as made:
        server, switch = made.nodes[1], Hanging()
        del server.handlers.reserved["tunnel"]
        service = server.connections.serve_tunnels(made.switches[0], made.records.append)
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        service.end_unless(lambda node_id: node_id == made.nodes[0].node_id)
        assert service.count == 1
        service.end_unless(lambda node_id: False)
        await eventually(lambda: here.code is not None and ends[0].code is not None)
        assert (here.code, ends[0].code) == (CloseCode.NOT_AUTHORISED,) * 2
        await eventually(lambda: not service.count and not made.switches[0].open)

        # A tunnel requested earlier isn't opened either.
        del server.handlers.reserved["tunnel"]
        service = server.connections.serve_tunnels(switch)

        async def end() -> None:
            await eventually(lambda: switch.asked == 1)
            service.end_unless(lambda node_id: False)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end)
            assert (await refused(made))[0] == ResultCode.NOT_AUTHORISED
        await eventually(lambda: switch.cancelled == 1 and not service.count)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\xff", ResultCode.MALFORMED),
        (encode({keys.TRACE: TRACE, keys.DEADLINE_MS: 1}), ResultCode.MALFORMED),
        (
            encode({keys.TRACE: b"", keys.DEADLINE_MS: 1, keys.TO: [bytes(32)]}),
            ResultCode.MALFORMED,
        ),
        (
            encode({keys.TRACE: TRACE, keys.DEADLINE_MS: 9, keys.TO: [bytes(31)]}),
            ResultCode.MALFORMED,
        ),
        (encode({keys.TRACE: TRACE, keys.DEADLINE_MS: 0, keys.TO: [bytes(32)]}), 17),
    ],
)
async def test_a_dial_that_may_not_be(payload: bytes, code: int, anyio_backend: str) -> None:
    async with row(3) as made:
        made.nodes[1].handlers.reserved.pop("tunnel")
        made.nodes[1].connections.serve_tunnels(Hanging())
        stream = made.links[0][0].streams.open_tunnel()
        answer = await stream.request(TUNNEL, DIAL, payload=payload)
        assert answer.cells[keys.CODE] == code
        stream.reset()


@pytest.mark.parametrize(("subcategory", "async_id"), [(2, 0), (2, 2), (3, 1)])
async def test_what_is_no_dial_resets_the_stream(
    subcategory: int, async_id: int, anyio_backend: str
) -> None:
    async with row(3) as made:
        stream = made.links[0][0].streams.open_tunnel()
        stream.live.core.send(stream.id, async_id, TUNNEL, subcategory, b"")
        await eventually(lambda: error_code_of(stream) is not None)
        assert error_code_of(stream) == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("behind_a_dial", [False, True])
@pytest.mark.parametrize("data", [False, True])
async def test_what_may_not_come_before_the_answer_resets_the_stream(
    data: bool, behind_a_dial: bool, anyio_backend: str
) -> None:
    async with row(3) as made:
        switch = Hanging()
        made.nodes[1].handlers.reserved.pop("tunnel")
        made.nodes[1].connections.serve_tunnels(switch)
        stream = made.links[0][0].streams.open_tunnel()
        core = stream.live.core
        if behind_a_dial:
            core.send(stream.id, 1, TUNNEL, DIAL, DIAL_TO_NOBODY)
            await eventually(lambda: switch.asked == 1)
        if data:
            core.send_data(stream.id, b"too early")
        else:
            core.send(stream.id, 1, TUNNEL, DIAL if behind_a_dial else 1, DIAL_TO_NOBODY)
        await eventually(lambda: error_code_of(stream) is not None)
        assert error_code_of(stream) == CloseCode.PROTOCOL_ERROR
        await eventually(lambda: switch.cancelled == switch.asked)
        assert made.links[0][0].is_open


async def test_a_stream_without_a_dial_is_reset(anyio_backend: str) -> None:
    clock = FakeClock()
    async with row(3, clock=clock) as made:
        stream = made.links[0][0].streams.open_tunnel()
        await clock.tick(DIAL_WAIT + 1)
        await eventually(lambda: error_code_of(stream) is not None)
        assert error_code_of(stream) == CloseCode.TIMEOUT


async def test_no_tunnel_leads_on_from_a_tunnel(anyio_backend: str) -> None:
    async with row(3) as made:
        peer = await made.reach()
        with pytest.raises(TunnelRefusedError) as caught:
            await dial_tunnel(peer, to=[made.target.node_id], trace=TRACE, timeout=5)
        assert caught.value.code == ResultCode.NOT_AUTHORISED
        stream = peer.streams.open_tunnel()
        dial = encode({keys.TRACE: TRACE, keys.DEADLINE_MS: 1_000, keys.TO: [bytes(32)]})
        with pytest.raises(StreamResetError) as reset:
            await stream.request(TUNNEL, DIAL, payload=dial)
        assert reset.value.code == CloseCode.NOT_AUTHORISED
        await peer.close()


async def test_a_target_without_room_says_so(anyio_backend: str) -> None:
    async with row(3, max_connections=1) as made:
        first = await made.reach()
        assert await refused(made) == (ResultCode.OVERLOADED, 1)
        await first.close()
        await eventually(lambda: not made.switches[1].open)
        await (await made.reach()).close()


async def test_a_node_that_stops_says_so_through_its_tunnels(anyio_backend: str) -> None:
    async with row(4) as made:
        peer = await made.reach()
        await peer.ping()  # so that the peer knows that it is open
        await made.target.aclose()
        assert (await peer.closed()).code == CloseCode.GOING_AWAY
        await eventually(lambda: len(made.records) == 2)


async def test_tunnels_are_served_once(anyio_backend: str) -> None:
    async with row(3) as made:
        with pytest.raises(ParleyError, match="already"):
            made.target.connections.serve_tunnels(Hanging())


async def test_an_account_lets_in_what_its_home_says_is_for_it(anyio_backend: str) -> None:
    async with row(3) as made:
        home, node = made.nodes[1], made.target
        other = NodeId(bytes(32))
        switch = AccountDialPolicy(node.node_id, lambda: {home.node_id}, node.backend.now)

        async def code_of(neighbour: NodeId, path: tuple[NodeId, ...] | None) -> int:
            to = None if path else (node.node_id,)
            try:
                async with switch.decide(IncomingDial(neighbour, path, to, TRACE, 0.0)) as onward:
                    assert onward is None
            except TunnelRefusedError as error:
                return error.code
            return 0

        assert await code_of(home.node_id, (other, home.node_id, node.node_id)) == 0
        assert await code_of(other, (other, node.node_id)) == ResultCode.NOT_AUTHORISED
        assert await code_of(home.node_id, (other, node.node_id)) == ResultCode.NOT_AUTHORISED
        for path in [
            None,
            (home.node_id, other),
            (node.node_id, home.node_id, node.node_id),
        ]:
            assert await code_of(home.node_id, path) == ResultCode.MALFORMED
        codes = [await code_of(home.node_id, made.path) for _ in range(51)]
        assert codes.count(ResultCode.OVERLOADED) > 0  # limit: a burst of 50, then 50 a second


async def test_an_account_has_room_for_256_tunnels_of_a_home(anyio_backend: str) -> None:
    home, node = NodeId(bytes([1]) * 32), NodeId(bytes([2]) * 32)
    now = 0.0
    switch = AccountDialPolicy(node, lambda: {home}, lambda: now)
    dial = IncomingDial(home, (home, node), None, TRACE, 0.0)
    async with AsyncExitStack() as stack:
        for _ in range(TUNNELS_OF_LINK):
            now += 1.0
            await stack.enter_async_context(switch.decide(dial))
        now += 1.0
        with pytest.raises(TunnelRefusedError) as caught:
            await stack.enter_async_context(switch.decide(dial))
        assert caught.value.code == ResultCode.OVERLOADED
    now += 1.0
    async with switch.decide(dial):
        pass


async def test_ends_meet_what_was_sent_right_behind_the_answer(anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target)
        tunnel = await made.open()
        ends[0].writer.write(b"first")
        await eventually(lambda: len(received_bytes_of(tunnel.stream)) > 0)
        tunnel.stream.reset()
