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
)
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.rekeying import RekeyState
from tests.reference.sealing import Opened
from tests.reference.wire import CELLS, CODES, TYPES

pytestmark = pytest.mark.anyio


def rekeying(peer: ReferencePeer) -> RekeyState:
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
    """The local offer wins; the reference's is ignored, takes no number and doesn't count."""
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


# Failures of a rekey. The reference is passive here.


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


def then(*steps: Callable[[ReferencePeer], object]) -> Callable[[ReferencePeer], None]:
    """One step after the other."""

    def act(peer: ReferencePeer) -> None:
        for step in steps:
            step(peer)

    return act


async def rekeys(peer: Peer, code: str) -> None:
    """Our application asks for a rekey, and learns how it ended."""
    with pytest.raises(PeerClosedError) as error:
        await peer.rekey()
    assert error.value.code == CODES[code]


async def test_plain_key_updates_within_a_rekey_are_allowed() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        finishing(peer)
        due, rekeying(peer).pending = rekeying(peer).pending, None
        peer.update_keys()  # A plain one before the KeyUpdate of the rekey.
        rekeying(peer).pending = due
        peer.update_keys()
        speaks(peer, 1)
        acts.close(peer)

    async with our_node() as ours:
        await ours.meet(act, automatic=False)
        assert await ours.ended() == "normal"
