"""Exchange of cards between servers in one process: over links, around rings, and with faults."""

from typing import Any

import pytest

from parley._node.errors import CallRefused, StreamResetError
from parley._node.protocol.codes import DATA, FEDERATION, HAVE, STREAM, CloseCode, ResultCode
from parley._node.protocol.event import parse_raw
from parley._node.remote.stream import Stream
from parley._node.server.calls import offer_federation_calls
from parley._node.server.directory_driver import REOPEN_PAUSE
from parley._node.testing.nodes import connect_nodes
from tests.inspection import card_streams_of
from tests.node.network import new_node
from tests.node.server.ring import Servers, ring, servers
from tests.vectors.load import Vector, codes, of_kind, unhex, vectors

pytestmark = pytest.mark.anyio


def kinds(five: Servers, number: int) -> list[tuple[str, list[int] | None]]:
    return [(one.kind, five.numbers(one.servers)) for one in five.federations[number].check()]


async def read_to_its_end(stream: Stream) -> None:
    while True:
        await stream.receive_event()


async def test_cards_go_around_a_ring() -> None:
    async with servers(5, ring(5), exports=("shop.*",)) as five:
        await five.until(five.know_all)
        assert five.path(0, 2) == [0, 1, 2]
        assert five.path(0, 3) == [0, 4, 3]
        for each in five.federations:
            assert [server.exports for server in each.servers] == [("shop.*",)] * 4
            assert all(len(server.links) == 2 for server in each.servers)
            assert all(server.made < server.expires for server in each.servers)
        assert kinds(five, 0) == []
        # Along the other path while a link is down, and back.
        five.network.close(five.nodes[0], five.nodes[1])
        await five.until(lambda: five.path(0, 1) == [0, 4, 3, 2, 1])
        assert kinds(five, 0)[0] == ("link-down", [1])
        five.network.open(five.nodes[0], five.nodes[1])
        await five.until(lambda: five.path(0, 1) == [0, 1])


async def test_server_that_does_not_relay_is_avoided() -> None:
    async with servers(4, ring(4), carrying=(0, 2, 3)) as four:
        await four.until(four.know_all)
        assert four.path(0, 2) == [0, 3, 2]
        assert four.path(0, 1) == [0, 1]
        assert kinds(four, 3) == [("carries-for-nobody", [1])]


async def test_card_of_a_stopped_server_expires() -> None:
    async with servers(3, [(0, 1), (1, 2)]) as three:
        await three.until(three.know_all)
        three.network.kill(three.nodes[2])
        await three.until(lambda: three.path(0, 2) is None)  # 1 no longer lists its link
        assert kinds(three, 0) == [("one-sided", [2, 1]), ("unreachable", [2])]
        await three.until(lambda: len(three.federations[0].servers) == 1, 3_700, 60.0)
        assert kinds(three, 0) == [("no-card", [2])]
        assert three.path(0, 1) == [0, 1]


@pytest.mark.parametrize("ahead", [-3_700.0, 310.0])
async def test_members_with_wrong_clocks_are_reported(
    ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers(3, ring(3), ahead={2: ahead}) as three:
        await three.until(lambda: ("clock", [2]) in kinds(three, 0))
        await three.until(lambda: three.path(0, 1) == [0, 1])
        assert three.path(0, 2) is None
    assert str(three.nodes[2].node_id) in caplog.text


@vectors("federation", of_kind("federation"))
async def test_an_event_on_a_stream_of_cards(vector: Vector) -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        ran: list[object] = []
        two.nodes[1].on_call("parley.echo")(lambda call: ran.append(call))
        stream = await opened_anew(two)
        await two.clock.settle()
        core = stream_of(two, 1).live.core
        before = core.dropped
        event = parse_raw(unhex(vector["raw_event"]))
        _, async_id, category, subcategory = event.head
        payload = event.payload
        if (category, subcategory) == (STREAM, DATA):
            stream.live.core.send_data(stream.id, payload)
        else:
            stream.live.core.send(stream.id, async_id, category, subcategory, payload, lbm=False)
        await two.clock.settle()
        assert core.dropped == before + (vector.get("expected") == "dropped")
        assert stream.has_ended is ("fails" in vector)
        if "fails" in vector:
            with pytest.raises(StreamResetError) as caught:
                await read_to_its_end(stream)
            assert caught.value.code in codes(vector)
        assert not ran
        assert stream.live.is_open


def stream_of(two: Servers, server: int) -> Stream:
    (stream,) = card_streams_of(two.federations[server])
    return stream


async def opened_anew(two: Servers) -> Stream:
    """Replace the stream of the dialling server by another, on which both have sent Have."""
    (link,) = two.federations[0].links
    assert link.peer is not None
    stream_of(two, 0).reset()
    await two.clock.settle()
    stream = link.peer.streams.open_federation()
    await stream.send_event(FEDERATION, HAVE, payload=b"\xa1\x18\x3e\x80")
    return stream


async def test_stream_with_a_violation_is_reset_and_reopened() -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        peer = two.federations[0].links[0].peer
        stream = await opened_anew(two)
        await stream.send_event(FEDERATION, HAVE, payload=b"x")
        with pytest.raises(StreamResetError) as caught:
            await read_to_its_end(stream)
        assert caught.value.code == CloseCode.PROTOCOL_ERROR
        assert two.federations[0].links[0].peer is peer
        await two.clock.tick(REOPEN_PAUSE + 1)
        assert two.federations[0].links[0].peer is peer


async def test_a_second_stream_is_refused_and_the_first_stays() -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        (link,) = two.federations[0].links
        assert link.peer is not None
        first = stream_of(two, 0), stream_of(two, 1)
        for _ in range(2):
            with pytest.raises(StreamResetError) as caught:
                await read_to_its_end(link.peer.streams.open_federation())
            assert caught.value.code == CloseCode.REFUSED
        assert (stream_of(two, 0), stream_of(two, 1)) == first
        assert not any(stream.has_ended for stream in first)
        assert link.peer.is_open


async def test_what_members_may_ask() -> None:
    async with servers(3, ring(3)) as three, new_node() as stranger:
        await three.until(three.know_all)
        for node, federation in zip(three.nodes, three.federations, strict=True):
            offer_federation_calls(node, federation)
        peer, _ = await connect_nodes(stranger, three.nodes[0])
        for name in ("list", "path", "check"):
            with pytest.raises(CallRefused) as caught:
                await peer.call(f"parley.federation.{name}")
            assert caught.value.code == ResultCode.NOT_AUTHORISED
        member = three.federations[1].links[0].peer
        assert member is not None
        other = three.nodes[2].node_id
        told: Any = await member.call("parley.federation.list")
        assert {one["node_id"] for one in told["servers"]} | {told["node_id"]} == {
            str(node.node_id) for node in three.nodes
        }
        assert all(link["up"] and link["error"] is None for link in told["links"])
        answer: Any = await member.call("parley.federation.path", [str(other)])
        assert answer["path"] is None or answer["path"][-1] == str(other)
        assert await member.call("parley.federation.check") == []
        for wrong in (None, [], [1], ["x"], [str(other)] * 3):
            with pytest.raises(CallRefused) as caught:
                await member.call("parley.federation.path", wrong)
            assert caught.value.code == ResultCode.MALFORMED
