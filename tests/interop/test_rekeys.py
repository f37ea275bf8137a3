"""Key updates and rekeys between our node and the reference: crossing, repeated, broken.

Section 6 of docs/protocol.md, its table of states row by row.
"""

import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from parley import Peer
from parley._node.errors import PeerClosedError
from tests.interop.meeting import (
    SIDES,
    our_config,
    our_node,
    their_config,
    with_bystander,
)
from tests.reference import acts
from tests.reference.exchange import Offer
from tests.reference.peer import ReferencePeer, Side
from tests.reference.rekeying import Rekeying
from tests.reference.sealing import Opened
from tests.reference.wire import CELLS, CODES, TYPES, cells_payload
from tests.sweep import sweep

pytestmark = pytest.mark.anyio


def rekeying(peer: ReferencePeer) -> Rekeying:
    """The rekeys of an encrypted connection."""
    assert peer.rekeying is not None
    return peer.rekeying


def speaks(peer: ReferencePeer, async_id: int) -> None:
    """The connection still works, both ways."""
    said = f"still here {async_id}"
    assert acts.call(peer, "parley.echo", said, async_id=async_id)[CELLS["data"]] == said


@pytest.mark.parametrize("sealing", ["chain", "each"])
@pytest.mark.parametrize("side", SIDES)
async def test_many_key_updates_and_rekeys(side: Side, sealing: str) -> None:
    def act(peer: ReferencePeer) -> tuple[int, int]:
        peer.handshake()
        for number in range(1, 6):
            peer.update_keys()
            acts.rekey(peer)
            speaks(peer, number)
            peer.update_keys()
        speaks(peer, 6)
        acts.close(peer)
        outgoing = peer.session.outgoing
        assert outgoing is not None
        return rekeying(peer).number, outgoing.epoch

    async with our_node(our_config(rekey_allowance=5)) as ours:
        config = their_config(sealing=(sealing,))
        assert await ours.meet(act, side, config=config) == (5, 15)


async def test_key_updates_of_both_sides_with_streams_open() -> None:
    async def application(peer: Peer) -> None:
        async with peer.open_stream("app/any") as stream:
            for number in range(4):
                await stream.send(bytes([number]) * 100)
                peer.update_keys()
                await anyio.lowlevel.checkpoint()
                await stream.send(bytes([number]))
                if number == 1:
                    assert await peer.rekey() == 1
            await stream.send_eof()
            assert [data async for data in stream] == []
        await peer.close()

    def act(peer: ReferencePeer) -> bytes:
        peer.handshake()
        data = b""
        while (event := peer.recv_event()).type != TYPES["Finish"]:
            if event.type == TYPES["Data"]:
                data += event.payload
                peer.update_keys()
        acts.finish(peer, event.stream)
        assert acts.serve(peer).code == 0
        return data

    async with our_node() as ours:
        data = await ours.meet(act, "responder", application=application)
        assert data == b"".join(bytes([number]) * 101 for number in range(4))


# Offers that cross.


async def offer(peer: Peer, go: threading.Event, number: int) -> None:
    """Our offer, and only then the sign for the reference to make its own."""
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            assert await peer.rekey() == number

        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        go.set()


@pytest.mark.parametrize("sealing", ["chain", "each"])
async def test_crossing_offers_with_our_node_the_initiator(sealing: str) -> None:
    """Ours stands; the reference's is ignored, takes no number and does not count."""
    go = threading.Event()

    async def application(peer: Peer) -> None:
        await offer(peer, go, 1)
        assert (await peer.closed()).code == CODES["normal"]

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        assert go.wait(4)
        acts.offer_rekey(peer)  # it has not read ours
        peer.update_keys()
        acts.settle(peer)
        speaks(peer, 1)
        assert rekeying(peer).number == 1
        acts.rekey(peer)
        speaks(peer, 2)
        acts.close(peer)
        return rekeying(peer).number

    async with our_node() as ours:
        config = their_config(sealing=(sealing,))
        assert await ours.meet(act, "responder", config=config, application=application) == 2


@pytest.mark.parametrize("sealing", ["chain", "each"])
async def test_crossing_offers_with_our_node_the_responder(sealing: str) -> None:
    """Ours is forgotten; it answers the reference's, and may offer again at once."""
    first, second, done = threading.Event(), threading.Event(), threading.Event()
    async with our_node() as ours:

        async def application() -> None:
            await ours.until(lambda: bool(ours.node.peers))
            (peer,) = ours.node.peers
            await offer(peer, first, 1)
            await offer(peer, second, 2)
            done.set()

        def act(peer: ReferencePeer) -> int:
            peer.handshake()
            assert first.wait(4)
            acts.offer_rekey(peer)
            peer.update_keys()
            acts.settle(peer)
            speaks(peer, 1)
            assert second.wait(4)
            while rekeying(peer).number < 2:
                peer.next_event()
            acts.settle(peer)
            speaks(peer, 2)
            assert done.wait(4)
            acts.close(peer)
            return rekeying(peer).number

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(application)
            assert await ours.meet(act, config=their_config(sealing=(sealing,))) == 2


# What breaks a rekey. The reference does nothing of itself here.


def offered(peer: ReferencePeer) -> Opened:
    """Our node's offer, received."""
    acts.wait_for(peer, lambda event: event.type == TYPES["RekeyOffer"])
    return peer.events[-1]


def answered(peer: ReferencePeer) -> None:
    """Our node's offer, received and answered; the KeyUpdate is still to be sent."""
    offer = offered(peer)
    answer = rekeying(peer).receive_offer(offer, offer.event.cells())
    assert answer is not None
    peer.send_event(0, 0, *TYPES["RekeyAnswer"], answer[0])
    rekeying(peer).answered(offer, answer[1])


def finishing(peer: ReferencePeer) -> None:
    """An offer that our node has answered and followed by its KeyUpdate; ours is due."""
    acts.offer_rekey(peer)
    answer = acts.wait_for(peer, lambda event: event.type == TYPES["RekeyAnswer"])
    rekeying(peer).receive_answer(peer.events[-1], answer.cells())
    acts.wait_for(peer, lambda event: event.type == TYPES["KeyUpdate"])


def rekeyed(peer: ReferencePeer) -> None:
    """A whole rekey, offered by the reference."""
    finishing(peer)
    peer.update_keys()


def then(*steps: Callable[[ReferencePeer], object]) -> Callable[[ReferencePeer], None]:
    """One step after the other."""

    def act(peer: ReferencePeer) -> None:
        for step in steps:
            step(peer)

    return act


def sends(name: str, **cells: object) -> Callable[[ReferencePeer], object]:
    """An event of stream 0; keys do not change by it."""
    return lambda peer: peer.send_event(0, 0, *TYPES[name], cells_payload(**cells))


def share(peer: ReferencePeer) -> None:
    """A RekeyOffer, whatever goes on."""
    peer.send_event(0, 0, *TYPES["RekeyOffer"], rekeying(peer).make_offer())


def peer_keeps_its_keys(peer: ReferencePeer) -> None:
    """The KeyUpdate of the rekey, and an event under the keys before it."""
    sends("KeyUpdate", epoch=1, rekey=1)(peer)
    peer.send("Call", 1, 1, topic="parley.echo")


def two_offers(peer: ReferencePeer) -> None:
    """A second offer before the answer to the first is read."""
    acts.offer_rekey(peer)
    sends("RekeyOffer", share=Offer.fresh("x25519").share)(peer)
    answer = acts.wait_for(peer, lambda event: event.type == TYPES["RekeyAnswer"])
    rekeying(peer).receive_answer(peer.events[-1], answer.cells())


TO_OUR_OFFER = {
    "a short share": (then(offered, sends("RekeyAnswer", share=bytes(31))), "protocol-error"),
    "a zero share": (then(offered, sends("RekeyAnswer", share=bytes(32))), "protocol-error"),
    "no share": (then(offered, sends("RekeyAnswer", epoch=1)), "protocol-error"),
    "KeyUpdate of the rekey, unanswered": (
        then(offered, sends("KeyUpdate", epoch=1, rekey=1)),
        "protocol-error",
    ),
    "two answers": (then(answered, sends("RekeyAnswer", share=b"\x09" * 32)), "protocol-error"),
    "an offer after the answer": (then(answered, share), "protocol-error"),
    "a wrong number": (then(answered, sends("KeyUpdate", epoch=1, rekey=2)), "protocol-error"),
    "number 0": (then(answered, sends("KeyUpdate", epoch=1, rekey=0)), "protocol-error"),
    "a wrong epoch": (then(answered, sends("KeyUpdate", epoch=2, rekey=1)), "protocol-error"),
    "a Ping before the KeyUpdate": (
        then(answered, lambda p: p.send("Ping", 0, 1)),
        "protocol-error",
    ),
    "a Call before the KeyUpdate": (
        then(answered, lambda p: p.send("Call", 1, 1, topic="parley.echo")),
        "protocol-error",
    ),
    "a plain KeyUpdate first": (then(answered, sends("KeyUpdate", epoch=1)), "protocol-error"),
    "Close before the KeyUpdate": (then(answered, sends("Close", code=0)), "protocol-error"),
}
OF_THEIR_OWN = {
    "two offers": (two_offers, "protocol-error"),
    "an offer before its KeyUpdate": (then(finishing, share), "protocol-error"),
    "an answer to its own offer": (
        then(finishing, sends("RekeyAnswer", share=b"\x09" * 32)),
        "protocol-error",
    ),
    "a wrong number": (then(finishing, sends("KeyUpdate", epoch=1, rekey=2)), "protocol-error"),
    "number 0": (then(finishing, sends("KeyUpdate", epoch=1, rekey=0)), "protocol-error"),
    "a wrong epoch": (then(finishing, sends("KeyUpdate", epoch=2, rekey=1)), "protocol-error"),
    "its KeyUpdate twice": (
        then(rekeyed, sends("KeyUpdate", epoch=2, rekey=1)),
        "protocol-error",
    ),
    "the next number": (then(rekeyed, sends("KeyUpdate", epoch=2, rekey=2)), "protocol-error"),
    "an answer once all is over": (
        then(rekeyed, sends("RekeyAnswer", share=b"\x09" * 32)),
        "protocol-error",
    ),
    "the old keys": (then(finishing, peer_keeps_its_keys), "bad-record"),
    "three rekeys in 10 s": (then(rekeyed, rekeyed, share), "overloaded"),
}


async def rekeys(peer: Peer, code: str) -> None:
    """Our application asks for a rekey, and learns how it ended."""
    with pytest.raises(PeerClosedError) as error:
        await peer.rekey()
    assert error.value.code == CODES[code]


@sweep("fault", TO_OUR_OFFER)
@sweep("side", SIDES)
async def test_a_wrong_answer_to_our_offer(side: Side, fault: str) -> None:
    step, code = TO_OUR_OFFER[fault]

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        step(peer)
        return acts.closed_with(peer)

    async with our_node() as ours:
        async with anyio.create_task_group() as tasks:

            async def when_dialled() -> None:
                await ours.until(lambda: bool(ours.node.peers))
                await rekeys(ours.node.peers[0], code)

            if side == "initiator":
                tasks.start_soon(when_dialled)
            closed = await ours.meet(
                act, side, application=lambda peer: rekeys(peer, code), automatic=False
            )
        assert closed == await ours.ended() == code
        assert ours.called == []


@sweep("fault", OF_THEIR_OWN)
@sweep("side", SIDES)
async def test_a_wrong_rekey_of_theirs(side: Side, fault: str) -> None:
    step, code = OF_THEIR_OWN[fault]

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        step(peer)
        return acts.closed_with(peer)

    async with with_bystander(our_config(rekey_allowance=2)) as ours:
        assert await ours.meet(act, side, automatic=False) == code
        assert await ours.ended() == code


async def test_plain_key_updates_within_a_rekey_are_allowed() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        finishing(peer)
        due, rekeying(peer).pending = rekeying(peer).pending, None
        peer.update_keys()  # a plain one before that of the rekey
        rekeying(peer).pending = due
        peer.update_keys()
        speaks(peer, 1)
        acts.close(peer)

    async with our_node() as ours:
        await ours.meet(act, automatic=False)
        assert await ours.ended() == "normal"


@pytest.mark.pure
async def test_an_offer_that_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley._node.protocol.rekey.REKEY_TIMEOUT", 0.2)

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        offered(peer)
        return acts.closed_with(peer)

    async with our_node() as ours:
        closed = await ours.meet(
            act, "responder", application=lambda peer: rekeys(peer, "timeout"), automatic=False
        )
        assert closed == await ours.ended() == "timeout"


@pytest.mark.pure
async def test_a_rekey_that_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference answers the offer and keeps its KeyUpdate back: `rekey` ends all the same."""
    monkeypatch.setattr("parley._node.protocol.rekey.REKEY_TIMEOUT", 0.2)

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        answered(peer)
        return acts.closed_with(peer)

    async with our_node() as ours:
        closed = await ours.meet(
            act, "responder", application=lambda peer: rekeys(peer, "timeout"), automatic=False
        )
        assert closed == await ours.ended() == "timeout"


@pytest.mark.pure
async def test_a_seal_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """`seal_delay_ms` plus the grace (here 0.2 s instead of 10 s) after an unsealed event."""
    monkeypatch.setattr("parley._node.protocol.channel.SEAL_GRACE", 0.2)

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        peer.send_event(1, 0, 64, 1, b"x", sealed=True)
        assert acts.call(peer, "parley.echo", "unsealed")[CELLS["code"]] == 0
        return acts.closed_with(peer)

    async with our_node() as ours:
        assert await ours.meet(act, automatic=False) == "seal-violation"
