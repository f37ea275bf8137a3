"""Row 14. Mistake: early data acted on. Promise: nothing is accepted before the Proofs, in
whatever form it comes and from whichever side, and nothing of what came with a Proof before
its sender has been accepted.

Every event in every state as a property: test_row_05_*.py. Replayed flights: test_row_03_*.py.
"""

from dataclasses import replace

import anyio
import pytest

from parley import Call, PeerClosedError
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import (
    ConnectionEnded,
    EventReceived,
    HandshakeCompleted,
    PeerIdentified,
)
from parley._node.protocol.states import State
from parley._node.trust.policies import AnyPeer
from parley.trust import Candidate
from tests.node.network import PATIENCE, new_node, settled
from tests.node.protocol.pair import ALIVE, Pair, Side, events_of
from tests.reference.wire import TYPES, Event, cells_payload
from tests.security.changed_bytes import doing
from tests.security.insider import ALGORITHMS, Insider, meeting
from tests.security.middle import Middle
from tests.security.shapes import INITIATORS_PROOF, RESPONDERS_PROOF, SHAPES, Shape
from tests.security.tampering import inserted

each_side = pytest.mark.parametrize("who", [0, 1], ids=["initiator", "responder"])
each_shape = pytest.mark.parametrize(
    "shape", [SHAPES[name] for name in ("chain", "each", "network")], ids=lambda shape: shape.name
)


def all_events() -> dict[str, Event]:
    """One of each type that there is, as it would be right on an open connection, and some
    that there are not."""
    found = {}
    for name, kind in TYPES.items():
        stream = 0 if kind[0] == 1 or name in ("Window", "Reset") else 3 if kind[0] == 2 else 1
        payload = {
            "Call": cells_payload(topic="t", data=1),
            "Subscribe": cells_payload(topic="t"),
            "Open": cells_payload(label="app/any"),
            "Window": cells_payload(stream=1, credit=1),
            "Emit": cells_payload(name="n", data=b"", format=16),
            "KeyUpdate": cells_payload(epoch=1),
            "RekeyOffer": cells_payload(share=bytes(31) + b"\x09"),
            "Close": cells_payload(code=0),
            "Data": b"data",
        }.get(name, b"\xa0")
        found[name] = Event(stream, 1 if kind[0] in (3, 4) else 0, *kind, payload)
    for category in (5, 9, 63, 64, 255):
        found[f"{category}/1"] = Event(1, 0, category, 1, b"\xa0")
    return found


EVENTS = all_events()
RAW = {f"raw {name}": frame(event.raw) for name, event in EVENTS.items()}
UNREAD = {name: event for name, event in EVENTS.items() if name not in ("Hello", "Proof")}


def test_there_is_one_of_each() -> None:
    assert {event.type for event in EVENTS.values()} >= set(TYPES.values())
    assert len(EVENTS) > 25


@each_shape
def test_raw_events_anywhere_in_the_handshake(shape: Shape) -> None:
    for name in shape.events:
        for what, tamper in inserted(shape, name, RAW):
            with doing(f"{name}: {what}"):
                middle = Middle(shape, tamper)
                middle.conclude()
                middle.assert_refused(any_code="Reject" in what)
                assert not middle.b.events


@each_side
@pytest.mark.parametrize("name", UNREAD)
def test_an_event_under_the_keys_of_the_proofs(name: str, who: int) -> None:
    """In place of the Proof, or directly behind it: those keys are for Proofs alone."""
    event = UNREAD[name]
    if event.stream == 3 and who == 1:  # each side has stream ids of its own
        event = replace(event, stream=2)
    algorithm = ALGORITHMS[0]
    for behind in (False, True):
        pair = meeting(algorithm)
        pair.carry(pair.a)
        insider = Insider(pair.b.handshake)
        first, proof = events_of(pair.b.take(pair.now))
        reader = pair.a
        if who == 0:  # the initiator sends it
            pair.deliver(pair.a, frame(first) + frame(proof))
            proof, reader = events_of(pair.a.take(pair.now))[0], pair.b
        signer = pair.other(reader).core.config.identity.key(algorithm)
        early = insider.in_place_of_the_proof(event, signer, initiators=who == 0)
        reply = frame(first) if who == 1 else b""
        pair.deliver(reader, reply + frame(proof) * behind + early)
        assert reader.code in (CloseCode.BAD_RECORD, CloseCode.AUTHENTICATION_FAILED)
        assert bool(reader.all(PeerIdentified)) == behind
        assert_nothing_but_the_handshake(reader)


@each_side
def test_an_event_that_says_what_a_proof_says(who: int) -> None:
    """Another type, stream or async id, and all else is a Proof, its signature included."""
    proof = Event(0, 0, *TYPES["Proof"], b"")
    changed = {name: replace(event, stream=0, async_id=0) for name, event in EVENTS.items()}
    changed["Proof"] = proof
    changed["a Proof with an async id"] = replace(proof, async_id=1)
    changed["a Proof on stream 1"] = replace(proof, stream=1)
    for name, event in changed.items():
        pair = meeting("ed25519")
        pair.carry(pair.a)
        insider = Insider(pair.b.handshake)
        reader, reply = pair.a, frame(events_of(pair.b.take(pair.now))[0])
        if who == 0:
            pair.deliver(pair.a, bytes(pair.b.wire))
            reader, reply = pair.b, b""
        own = pair.other(reader).core.config.identity
        payload = encode({keys.IDENTITY_KEYS: list(own.cells()), keys.NODE_INFO: {}})
        early = insider.in_place_of_the_proof(
            replace(event, payload=payload), own.key("ed25519"), initiators=who == 0
        )
        pair.deliver(reader, reply + early)
        with doing(name):
            assert bool(reader.all(PeerIdentified)) == (name == "Proof")
            assert (reader.code == ALIVE) == (name == "Proof")
            assert_nothing_but_the_handshake(reader)


def assert_nothing_but_the_handshake(side: Side) -> None:
    kinds = (PeerIdentified, HandshakeCompleted, ConnectionEnded)
    assert all(isinstance(report, kinds) for report in side.reports)


@each_shape
def test_data_before_its_proof(shape: Shape) -> None:
    """Right data under the right keys, ahead of the Proof or without one."""
    for order in ((1, 0), (1,), (1, 1)):
        pair = Pair(shape.config("initiator"), shape.config("responder"))
        pair.carry(pair.a)
        pair.carry(pair.b)
        pair.a.core.send(1, 0, 64, 1, b"early", lbm=False, seal=True)
        flight = events_of(pair.a.take(pair.now))
        assert len(flight) == 2
        pair.deliver(pair.b, b"".join(frame(flight[number]) for number in order))
        assert pair.b.code == CloseCode.BAD_RECORD
        assert not pair.b.all(PeerIdentified)
        assert_nothing_but_the_handshake(pair.b)


@each_side
def test_nothing_can_be_sent_before(who: int) -> None:
    """No state of the handshake lets an application write."""
    pair = meeting("ed25519")
    side = pair.sides[who]
    side.answer = None
    steps = 0
    while side.core.state is not State.OPEN and steps < 4:
        for attempt in (
            lambda: side.core.send(1, 0, 64, 1, b"early", lbm=False),
            lambda: side.core.open_stream("app/any"),
            lambda: side.core.ping(pair.now),
            lambda: side.core.update_keys(pair.now),
            lambda: side.core.rekey(pair.now),
        ):
            with pytest.raises(LocalProtocolError):
                attempt()
        pair.carry(pair.sides[steps % 2])
        steps += 1
    assert side.core.state is State.DECIDING
    assert side.code == ALIVE


@pytest.mark.parametrize("trusted", [True, False])
def test_data_that_came_with_the_proof_waits_for_the_decision(trusted: bool) -> None:
    """It is good data of an identified peer; still nobody sees it before the peer is taken."""
    pair = meeting("ed25519")
    pair.b.answer = None
    pair.carry(pair.a)
    pair.carry(pair.b)
    for number in range(3):
        pair.a.core.send(1, 0, 64, 1, b"early %d" % number, lbm=False, seal=True)
    stream = pair.a.core.open_stream("app/any")
    pair.a.core.send_data(stream, b"early")
    pair.carry(pair.a)
    for _ in range(3):  # whatever comes while it is decided
        pair.a.core.send(1, 0, 64, 1, b"later", lbm=False)
        pair.carry(pair.a)
    assert [type(report) for report in pair.b.reports] == [PeerIdentified]
    if trusted:
        pair.b.core.accept_peer(pair.now)
        pair.b.core.receive_data(b"", pair.now)  # what came with the Proof
        pair.b.collect(pair.now)
        came = [event.payload for event in pair.b.all(EventReceived) if event.stream == 1]
        assert came == [b"early 0", b"early 1", b"early 2", *[b"later"] * 3]
        assert len(pair.b.events) == len(came) + 1
        return
    pair.b.core.refuse_peer("a test", pair.now)
    pair.carry(pair.a)
    pair.pump()
    pair.run(60.0)
    assert_nothing_but_the_handshake(pair.b)
    assert not pair.b.opened
    assert pair.b.core.ended


def test_both_proofs_stand_before_anything_else() -> None:
    """The order on the wire, which all of the above relies on."""
    for shape in SHAPES.values():
        assert shape.events[-2:] == (RESPONDERS_PROOF, INITIATORS_PROOF)


@pytest.mark.anyio
@pytest.mark.parametrize("welcome", [True, False])
async def test_a_call_waits_for_the_accept_hook(anyio_backend: str, welcome: bool) -> None:
    """Over sockets: the caller calls at once, the other node takes its time to accept it."""
    called: list[object] = []
    refused: list[int] = []
    asked, answer = anyio.Event(), anyio.Event()

    async def decide(candidate: Candidate) -> bool:
        asked.set()
        await answer.wait()
        return welcome

    with anyio.fail_after(PATIENCE):
        async with new_node() as client, new_node(decide) as server:

            @server.on_call("t")
            async def note(call: Call) -> None:
                called.append(call.data)

            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"), trust=AnyPeer())

            async def call() -> None:
                try:
                    await peer.call("t", "early", timeout=PATIENCE)
                except PeerClosedError as error:
                    refused.append(error.code)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await asked.wait()
                await settled()
                assert called == []
                assert not server.peers
                answer.set()
            assert called == ["early"] * welcome
            assert refused == [CloseCode.AUTHENTICATION_FAILED] * (not welcome)
