"""Key statements between servers in one process: they travel over links, and hostile members can
neither forge nor suppress them.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._lbm import keys
from parley._lbm.codec import decode, encode
from parley._node.errors import CallRefused, StreamResetError
from parley._node.federation.limits import STATEMENT_EVENTS_ACCEPTED
from parley._node.node import Node
from parley._node.protocol.codes import FEDERATION, HAVE, STATEMENTS, CloseCode, ResultCode
from parley._node.protocol.event_types import MOST_STATEMENTS
from parley._node.remote.stream import Stream
from parley._node.server.calls import ASKED, offer_federation_calls
from parley._node.server.directory_driver import REOPEN_PAUSE
from parley._node.testing.nodes import connect_nodes
from tests.inspection import card_streams_of
from tests.node.network import PATIENCE, new_node
from tests.node.server.ring import Servers, ring, servers

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)
# Servers 0, 1 and 2 in a line. Server 3 is a member of all, and has no link.
LINE = [(0, 1), (1, 2)]


async def until(some: Servers, condition: Callable[[], bool]) -> None:
    """Wait for threads and for links, without letting much time pass."""
    with anyio.fail_after(PATIENCE):
        while not condition():
            await some.clock.tick(0.01)
            await anyio.sleep(0.001)


def stored(node: Node, *statements: Statement) -> bool:
    return {one.slot for one in statements} <= node.statements.table.stored.keys()


def has_ended(node: Node, node_id: NodeId) -> bool:
    return node.statements.table.has_ended(node_id)


def forged(statement: Statement, number: int = 0) -> bytes:
    """Return a statement whose signature is wrong."""
    return encode({**decode(statement.encoded), keys.SIGNATURE: number.to_bytes(64)})


async def hostile_stream(some: Servers, at: int = 0, to: int = 1) -> Stream:
    """Return a stream on which one server sends what it wants to another, after Have."""
    (peer,) = [
        link.peer
        for link in some.federations[at].links
        if link.node_id == some.nodes[to].node_id and link.peer is not None
    ]
    (own,) = [one for one in card_streams_of(some.federations[at]) if one.peer is peer]
    own.reset()
    await some.clock.settle()
    stream = peer.streams.open_federation()
    await stream.send_event(FEDERATION, HAVE, payload=encode({keys.HAVE: [], keys.SLOTS: []}))
    await some.clock.settle()
    return stream


async def read_to_its_end(stream: Stream) -> None:
    while True:
        await stream.receive_event()


async def say(stream: Stream, *statements: bytes) -> None:
    payload = encode({keys.STATEMENTS: list(statements)})
    await stream.send_event(FEDERATION, STATEMENTS, payload=payload)


async def test_a_statement_crosses_all_links() -> None:
    async with servers(4, LINE) as four:
        await until(four, lambda: four.path(0, 2) is not None)
        member = four.nodes[3].identity
        four.nodes[0].statements.apply(create_revocation(member).encoded)
        await until(four, lambda: has_ended(four.nodes[2], member.node_id))


async def test_a_chain_crosses_all_links_predecessors_first() -> None:
    async with servers(4, LINE) as four:
        await until(four, lambda: four.path(0, 2) is not None)
        (one, recovery), (two, _) = (Identity.create_recoverable() for _ in range(2))
        chain = [
            create_succession(four.nodes[3].identity, one),
            create_succession(recovery, two),
            create_revocation(two),
        ]
        for statement in reversed(chain):
            four.nodes[0].statements.apply(statement.encoded)
        await until(four, lambda: stored(four.nodes[2], *chain))


async def test_a_server_that_was_away_gets_the_statements_that_it_lacks() -> None:
    async with servers(4, LINE) as four:
        await until(four, lambda: four.path(0, 2) is not None)
        four.network.close(four.nodes[1], four.nodes[2])
        member = four.nodes[3].identity
        statement = create_revocation(member)
        four.nodes[0].statements.apply(statement.encoded)
        await until(four, lambda: stored(four.nodes[1], statement))
        assert not has_ended(four.nodes[2], member.node_id)
        four.network.open(four.nodes[1], four.nodes[2])
        await four.until(lambda: any(link.peer for link in four.federations[2].links))
        await until(four, lambda: stored(four.nodes[2], statement))


async def test_a_statement_that_a_member_dropped_is_sent_in_the_next_stream() -> None:
    async with servers(3, [(0, 1)]) as three:
        await until(three, lambda: three.path(0, 1) is not None)
        reader, ids = three.federations[1], [str(node.node_id) for node in three.nodes]
        reader.change_members([ids[0]], [])
        statement = create_revocation(three.nodes[2].identity)
        three.nodes[0].statements.apply(statement.encoded)
        await until(three, lambda: bool(three.nodes[1].statements.dropped))
        assert not stored(three.nodes[1], statement)
        # Now the member has the ID on record.
        reader.change_members([ids[0], ids[2]], [])
        await three.until(lambda: stored(three.nodes[1], statement))


@pytest.mark.parametrize("turns", range(6))
async def test_a_choice_just_after_a_statement_does_not_lose_the_statement(turns: int) -> None:
    """The choice resets the stream that has the statement in transit, because it adds a member."""
    async with servers(3, [(0, 1)]) as three:
        await until(three, lambda: three.path(0, 1) is not None)
        successor, _ = Identity.create_recoverable()
        member = three.nodes[2].identity
        statement = create_succession(member, successor)
        three.nodes[0].statements.apply(statement.encoded)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        three.nodes[0].statements.decide(member.node_id, successor.node_id)
        await three.until(lambda: stored(three.nodes[1], statement))


async def test_statements_about_other_nodes_are_not_shared() -> None:
    async with servers(4, LINE) as four:
        await until(four, lambda: four.path(0, 2) is not None)
        stranger, member = Identity.create(), four.nodes[3].identity
        four.nodes[0].statements.apply(create_revocation(stranger).encoded)
        four.nodes[0].statements.apply(create_revocation(member).encoded)
        await until(four, lambda: has_ended(four.nodes[1], member.node_id))
        assert not has_ended(four.nodes[1], stranger.node_id)
        assert not four.nodes[1].statements.dropped


async def test_a_withheld_statement_arrives_over_another_link() -> None:
    async with servers(4, ring(3)) as four:
        await until(four, lambda: all(len(one.links) == 2 for one in four.federations[:3]))
        await hostile_stream(four, 1, 2)  # sends nothing
        member = four.nodes[3].identity
        four.nodes[0].statements.apply(create_revocation(member).encoded)
        await until(four, lambda: has_ended(four.nodes[2], member.node_id))


async def test_forged_statements_are_dropped_and_nothing_else() -> None:
    async with servers(4, [(0, 1)]) as four:
        await until(four, lambda: four.path(0, 1) is not None)
        stream, reader = await hostile_stream(four), four.nodes[1]
        member, statements = four.nodes[3].identity, reader.statements
        true = create_revocation(member)
        new, _ = Identity.create_recoverable()
        succession = create_succession(member, new)
        await say(stream, forged(true), b"", forged(succession), true.encoded)
        await until(four, lambda: stored(reader, true))
        assert not stored(reader, succession)
        assert statements.dropped.total() == 3
        # The stream and the link are still open.
        await say(stream, succession.encoded)
        await until(four, lambda: stored(reader, succession))
        assert not stream.has_ended
        assert four.path(0, 1) is not None


async def test_a_flood_of_statements_is_dropped_without_being_read() -> None:
    async with servers(4, [(0, 1)]) as four:
        await until(four, lambda: four.path(0, 1) is not None)
        stream, reader = await hostile_stream(four), four.nodes[1]
        member = four.nodes[3].identity
        (link,) = four.federations[1].links
        assert link.peer is not None
        core = link.peer.live.core
        before, burst = core.dropped, int(STATEMENT_EVENTS_ACCEPTED.burst)
        revocation = create_revocation(member)
        for number in range(burst + 100):
            await say(stream, b"", forged(revocation, number))

        async def ignored(count: int) -> None:
            with anyio.fail_after(PATIENCE):
                while core.dropped < before + count:
                    await four.clock.settle()
                    await anyio.sleep(0.001)

        # A wrong signature counts as another event.
        await ignored(burst // 2 + 100)
        dropped = reader.statements.dropped
        assert dropped == {"malformed": burst // 2, "signature": burst // 2}
        assert not has_ended(reader, member.node_id)
        assert link.peer.is_open
        # The next one is accepted when the rate allows it.
        await four.clock.tick(STATEMENT_EVENTS_ACCEPTED.seconds)
        await say(stream, revocation.encoded)
        await until(four, lambda: stored(reader, revocation))


async def test_a_wrong_signature_above_the_rate_drops_the_rest_of_its_event() -> None:
    async with servers(4, [(0, 1)]) as four:
        await until(four, lambda: four.path(0, 1) is not None)
        stream, reader = await hostile_stream(four), four.nodes[1]
        revocation = create_revocation(four.nodes[3].identity)
        wrong = [forged(revocation, number) for number in range(MOST_STATEMENTS)]
        burst = int(STATEMENT_EVENTS_ACCEPTED.burst)
        dropped = reader.statements.dropped

        async def until_dropped(events: int) -> None:
            await until(four, lambda: dropped.total() == events * MOST_STATEMENTS)

        await say(stream, *wrong)
        await until_dropped(1)
        assert dropped == {"signature": burst, "above-rate": MOST_STATEMENTS - burst}
        # From now on, a single signature of an event is verified, and the stream stays open.
        for count in (1, 2):
            await four.clock.tick(STATEMENT_EVENTS_ACCEPTED.seconds)
            await say(stream, *wrong[1:], revocation.encoded)
            await until_dropped(1 + count)
            assert dropped["signature"] == burst + count
        assert not has_ended(reader, four.nodes[3].identity.node_id)
        await four.clock.tick(STATEMENT_EVENTS_ACCEPTED.seconds)
        await say(stream, revocation.encoded)
        await until(four, lambda: stored(reader, revocation))


@pytest.mark.parametrize("payload", [b"\xff", b"\xa0", encode({keys.STATEMENTS: []})])
async def test_a_malformed_event_resets_the_stream_and_not_the_link(payload: bytes) -> None:
    async with servers(2, [(0, 1)]) as two:
        await until(two, lambda: two.path(0, 1) is not None)
        stream = await hostile_stream(two)
        await stream.send_event(FEDERATION, STATEMENTS, payload=payload)
        with pytest.raises(StreamResetError) as caught:
            await read_to_its_end(stream)
        assert caught.value.code == CloseCode.PROTOCOL_ERROR
        (link,) = two.federations[0].links
        assert link.peer is not None
        # The next stream begins again with Have.
        await two.clock.tick(REOPEN_PAUSE + 1)
        member = two.nodes[1].identity
        assert two.federations[0].links[0].peer is link.peer
        assert not has_ended(two.nodes[0], member.node_id)


async def test_the_call_for_statements() -> None:
    async with servers(2, [(0, 1)]) as two, new_node() as stranger:
        await until(two, lambda: two.path(0, 1) is not None)
        home = two.nodes[0]
        offer_federation_calls(home, two.federations[0])
        (one, recovery), (other, _) = (Identity.create_recoverable() for _ in range(2))
        chain = [create_succession(recovery, other), create_revocation(other)]
        for statement in chain:
            home.statements.apply(statement.encoded)
        peer, _ = await connect_nodes(stranger, home)
        with pytest.raises(CallRefused) as caught:
            await peer.call("parley.statements", {"of": [str(one.node_id)]})
        assert caught.value.code == ResultCode.NOT_AUTHORISED
        member = two.federations[1].links[0].peer
        assert member is not None
        answer: Any = await member.call("parley.statements", {"of": [str(one.node_id)]})
        assert answer == {"statements": [each.encoded for each in chain]}
        # Predecessors come first, in whatever order the caller lists the IDs.
        both = [str(other.node_id), str(one.node_id)]
        answer = await member.call("parley.statements", {"of": both})
        assert answer == {"statements": [each.encoded for each in chain]}
        answer = await member.call("parley.statements", {"of": [str(home.node_id)] * 16})
        assert answer == {"statements": []}
        wrong: list[Any] = [None, {}, {"of": []}, {"of": ["x"]}, {"of": [str(home.node_id)] * 17}]
        for data in wrong:
            with pytest.raises(CallRefused) as caught:
                await member.call("parley.statements", data)
            assert caught.value.code == ResultCode.MALFORMED
        left = int(ASKED.burst) - 3 - len(wrong)
        for _ in range(left):
            await member.call("parley.statements", {"of": [str(one.node_id)]})
        with pytest.raises(CallRefused) as caught:
            await member.call("parley.statements", {"of": [str(one.node_id)]})
        assert caught.value.code == ResultCode.OVERLOADED
        await two.clock.tick(ASKED.seconds)
        await member.call("parley.statements", {"of": [str(one.node_id)]})
