"""Row 3. Mistake: a handshake that can be replayed.

Promise: a recorded flight convinces nobody again: not a responder's a new initiator, not an
initiator's the same or another responder, whole, in pieces, or with the same random value.

Single events of another session, and signatures of one: row 12. Within one session an
event that comes twice: row 6.
"""

from collections.abc import Callable
from functools import partial

import anyio
import pytest
from anyio.abc import ByteStream

from parley._crypto.randomness import random_bytes
from parley._lbm import keys
from parley._node.errors import HandshakeError
from parley._node.protocol.codes import HELLO, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.frames import FrameReader, frame
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from parley._node.transport.memory import memory_pair
from tests.interop.meeting import our_config
from tests.node.protocol.pair import ANY_SIZE, START, Pair, Side, events_of, fed
from tests.reference.handshake import handshake_cells
from tests.security.shapes import SHAPES, Shape, identity
from tests.security.witness import TRANSPORTS, TappedStream, Witness, witness

each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)

Cut = Callable[[bytes], list[bytes]]
CUTS: dict[str, Cut] = {
    "whole": lambda wire: [wire],
    "event by event": lambda wire: [frame(event) for event in events_of(wire)],
    "in threes": lambda wire: [wire[at : at + 3] for at in range(0, len(wire), 3)],
}


def recorded(shape: Shape) -> Pair:
    """A session in which the initiator had something done."""
    pair = Pair(shape.config("initiator"), shape.config("responder"))
    pair.pump()
    for side in pair.sides:
        side.core.send(1, 0, 64, 1, b"transfer", lbm=False, seal=True)
    pair.pump()
    for side in pair.sides:
        assert side.payloads == [b"transfer"]
    pair.a.core.close(pair.now)
    pair.pump()
    return pair


def fresh(shape: Shape, who: str, random: bytes | None = None) -> Side:
    """A new core of the same node; its random value is the one given, if any."""
    side = Side(shape.config(who), initiator=who == "initiator")
    side.core = Connection(
        shape.config(who),
        initiator=who == "initiator",
        now=START,
        random=lambda size: random if random is not None else random_bytes(size),
    )
    return side


def random_of(side: Side) -> bytes:
    """The random value that a side sent in its Hello or Reply."""
    events = map(handshake_cells, events_of(side.wire)[:2])
    return next(bytes(cells[keys.RANDOM]) for _, cells in events if keys.RANDOM in cells)


def feed(side: Side, pieces: list[bytes]) -> None:
    """Hand a core bytes, as long as it takes them."""
    for piece in pieces:
        side.take(START)
        side.core.receive_data(piece, START)
        side.collect(START)


def assert_not_convinced(side: Side) -> None:
    """It ended for the one reason that keys differ; nobody was asked or told anything."""
    assert side.code == CloseCode.BAD_RECORD
    (only,) = side.reports
    assert isinstance(only, ConnectionEnded)
    assert side.core.state is State.ENDED  # and says nothing
    assert not side.take(START)


@each_shape
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("same_random", [False, True])
def test_a_recorded_responder_does_not_convince_a_new_initiator(
    shape: Shape, cut: str, same_random: bool
) -> None:
    old = recorded(shape)
    new = fresh(shape, "initiator", random_of(old.a) if same_random else None)
    feed(new, CUTS[cut](bytes(old.b.wire)))
    assert_not_convinced(new)
    # It sent no more than one may see of it: Hello, and Hello again where it was asked.
    assert all(event[6:8] == bytes((1, HELLO)) for event in events_of(new.wire))
    assert 1 <= len(events_of(new.wire)) <= len([e for e in shape.events if "Hello" in e])


@each_shape
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("same_random", [False, True])
def test_a_recorded_initiator_does_not_convince_a_responder(
    shape: Shape, cut: str, same_random: bool
) -> None:
    """Its Hello is taken, network key or not; what it cannot be is followed up."""
    old = recorded(shape)
    new = fresh(shape, "responder", random_of(old.b) if same_random else None)
    feed(new, CUTS[cut](bytes(old.a.wire)))
    assert_not_convinced(new)
    assert bytes(new.wire) != bytes(old.b.wire)


@each_shape
def test_each_beginning_of_a_recorded_flight_comes_to_nothing(shape: Shape) -> None:
    """A flight that stops after any event: no one is identified, and the deadline holds."""
    old = recorded(shape)
    for who, wire in (("initiator", old.b.wire), ("responder", old.a.wire)):
        frames = [frame(event) for event in events_of(wire)]
        for count in range(len(frames)):
            new = fresh(shape, who)
            feed(new, frames[:count])
            new.core.handle_deadline(START + shape.config(who).handshake_timeout)
            new.collect(START)
            assert new.core.ended
            (only,) = new.reports
            assert isinstance(only, ConnectionEnded)
            assert only.code in (CloseCode.BAD_RECORD, CloseCode.TIMEOUT)


@each_shape
def test_a_recorded_flight_does_not_convince_while_the_session_goes_on(shape: Shape) -> None:
    """The replay arrives beside the connection it was recorded from; that one is not hurt."""
    pair = Pair(shape.config("initiator"), shape.config("responder"))
    pair.pump()
    for who, wire in (("initiator", pair.b.wire), ("responder", pair.a.wire)):
        new = fresh(shape, who)
        feed(new, [bytes(wire) + bytes(wire)])
        assert_not_convinced(new)
    pair.a.core.send(1, 0, 64, 1, b"data", lbm=False)
    pair.pump()
    assert pair.b.payloads == [b"data"]


# Nodes.


async def replay(stream: ByteStream, wire: bytes, events: int, *, speaks_first: bool) -> int:
    """Replay a flight to a node that will answer with so many events, after the first of the
    flight unless it speaks first; how many bytes it says after that, until it ends."""
    reader, received = FrameReader(ANY_SIZE), 0
    frames = [frame(event) for event in events_of(wire)]
    try:
        with anyio.fail_after(5):
            if not speaks_first:
                await stream.send(frames.pop(0))
            while received < events:
                received += len(list(fed(reader, await stream.receive())))
            await stream.send(b"".join(frames))
            return len(await stream.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        assert not reader.size
        return 0
    finally:
        await anyio.aclose_forcefully(stream)


async def record_session(server: Witness, name: str) -> tuple[bytes, bytes]:
    """What passed when a node of this name had its call answered; either direction."""
    ours, theirs = map(TappedStream, memory_pair())
    async with witness(our_config(), identity(name)) as client:
        server.tasks.start_soon(server.node.accept_stream, theirs)
        peer = await client.node.connect_stream(ours, trust=client.trust)
        assert await peer.call("parley.echo", "transfer") == "transfer"
        await peer.close()
    assert server.called == ["transfer"]
    return bytes(ours.sent), bytes(theirs.sent)


def refused(seen: Witness, count: int) -> bool:
    """Whether so many connections ended for the keys' sake, by the log."""
    return sum("ended: bad-record" in line for line in seen.log) == count


@pytest.mark.anyio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_node_does_a_recorded_call_once(transport: str, anyio_backend: str) -> None:
    async with witness(our_config(), identity("server")) as server:
        sent, _ = await record_session(server, "client")
        asked = len(server.trust.asked)
        for number in range(3):
            stream = await server.stranger(transport, node_dials=False)
            # Reply and Proof, and not a word after that.
            assert await replay(stream, sent, 2, speaks_first=False) == 0
            await server.settled(partial(refused, server, number + 1))
        assert server.called == ["transfer"]
        assert len(server.trust.asked) == asked
        if transport == "memory":
            assert [e.code for e in server.errors if isinstance(e, HandshakeError)] == [3, 3, 3]


@pytest.mark.anyio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_node_that_dials_is_not_convinced_by_a_recording(
    transport: str, anyio_backend: str
) -> None:
    async with witness(our_config(), identity("server")) as server:
        _, received = await record_session(server, "client")
    async with witness(our_config(), identity("client")) as client:
        stream = await client.stranger(transport, node_dials=True)
        assert await replay(stream, received, 1, speaks_first=True) == 0
        await client.settled(lambda: bool(client.errors))
        (error,) = client.errors
        assert isinstance(error, HandshakeError)
        assert error.code == CloseCode.BAD_RECORD
        assert client.untouched
        assert client.trust.asked == []
