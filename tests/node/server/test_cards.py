"""Cards of servers in one process: over links, around rings, and with what goes wrong."""

from typing import Any

import pytest

from node.errors import CallRefused, StreamResetError
from node.protocol.codes import FEDERATION, CloseCode, ResultCode
from node.server.calls import offer_federation_calls
from node.server.directory import AGAIN
from node.streams.stream import Stream
from node.testing.pair import connect_nodes
from tests.node.network import new_node
from tests.node.server.ring import Servers, ring, servers

pytestmark = pytest.mark.anyio


def kinds(five: Servers, number: int) -> list[tuple[str, list[int] | None]]:
    """What is wrong, as one of the servers sees it."""
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
        # The other way, while a link is down; and back.
        five.network.close(five.nodes[0], five.nodes[1])
        await five.until(lambda: five.path(0, 1) == [0, 4, 3, 2, 1])
        assert kinds(five, 0)[0] == ("link-down", [1])
        five.network.open(five.nodes[0], five.nodes[1])
        await five.until(lambda: five.path(0, 1) == [0, 1])


async def test_a_server_that_carries_for_nobody_is_gone_around() -> None:
    async with servers(4, ring(4), carrying=(0, 2, 3)) as four:
        await four.until(four.know_all)
        assert four.path(0, 2) == [0, 3, 2]
        assert four.path(0, 1) == [0, 1]
        assert kinds(four, 3) == [("carries-for-nobody", [1])]


async def test_a_server_that_is_gone_is_forgotten_when_its_card_expires() -> None:
    async with servers(3, [(0, 1), (1, 2)]) as three:
        await three.until(three.know_all)
        three.network.kill(three.nodes[2])
        await three.until(lambda: three.path(0, 2) is None)  # 1 lists its link no more
        assert kinds(three, 0) == [("one-sided", [2, 1]), ("unreachable", [2])]
        await three.until(lambda: len(three.federations[0].servers) == 1, 3_700, 60.0)
        assert kinds(three, 0) == [("no-card", [2])]
        assert three.path(0, 1) == [0, 1]


async def test_cards_live_for_hours_and_are_few() -> None:
    async with servers(3, ring(3)) as three:
        await three.until(three.know_all)
        first = [server.made for server in three.federations[0].servers]
        await three.clock.tick(1_300)
        assert three.know_all()
        second = [server.made for server in three.federations[0].servers]
        assert all(before < after for before, after in zip(first, second, strict=True))
        assert kinds(three, 0) == []


@pytest.mark.parametrize("ahead", [-3_700.0, 310.0])
async def test_whose_clock_is_wrong_is_said(ahead: float, caplog: pytest.LogCaptureFixture) -> None:
    async with servers(3, ring(3), ahead={2: ahead}) as three:
        await three.until(lambda: bool(three.federations[0]._directory.cards.clocks))
        assert ("clock", [2]) in kinds(three, 0)
        await three.until(lambda: three.path(0, 1) == [0, 1])
        assert three.path(0, 2) is None
    assert str(three.nodes[2].node_id) in caplog.text


async def test_four_minutes_are_borne() -> None:
    async with servers(3, ring(3), ahead={1: -50.0, 2: 240.0}) as three:
        await three.until(three.know_all)
        assert kinds(three, 0) == []


@pytest.mark.parametrize(
    ("subcategory", "payload"), [(2, b"\xa0"), (1, b"x"), (1, b"\xa1\x18\x3e\x80"), (3, b"\xa0")]
)
async def test_a_stream_that_breaks_the_rules_is_reset_and_opened_anew(
    subcategory: int, payload: bytes
) -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        ((link,),) = (each.links for each in two.federations[:1])
        assert link.peer is not None
        stream = link.peer.streams.open_federation()  # in place of the one that there is
        await stream.send_event(FEDERATION, 1, payload=b"\xa1\x18\x3e\x80")
        await stream.send_event(FEDERATION, subcategory, payload=payload)
        with pytest.raises(StreamResetError) as caught:
            await read_to_its_end(stream)
        assert caught.value.code == CloseCode.PROTOCOL_ERROR
        assert two.federations[0].links[0].peer is link.peer
        await two.clock.tick(AGAIN + 1)
        assert two.federations[0].links[0].peer is link.peer


async def test_of_two_streams_the_younger_counts() -> None:
    async with servers(2, [(0, 1)]) as two:
        await two.until(two.know_all)
        (link,) = two.federations[0].links
        assert link.peer is not None
        streams = []
        for _ in range(3):
            streams.append(link.peer.streams.open_federation())
            await two.clock.settle()
        for stream in streams[:2]:
            with pytest.raises(StreamResetError) as caught:
                await read_to_its_end(stream)
            assert caught.value.code == CloseCode.CANCELLED
        assert (await streams[2].receive_event()).subcategory == 1
        await two.clock.tick(AGAIN + 1)  # the one of its own
        with pytest.raises(StreamResetError):
            await read_to_its_end(streams[2])
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
