"""Short codes (section 21) with the reference, as a taker and as a giver."""

from collections.abc import Callable
from typing import Final

import pytest

from parley import Peer
from parley._node.apps.pairing.code import Code, WrongCodeError
from parley._node.apps.pairing.exchange import LABEL, CodeListener, take_code
from tests.interop.meeting import our_identity, our_node, their_identity
from tests.reference import acts, codes
from tests.reference.codes import CURVE
from tests.reference.peer import ReferencePeer
from tests.reference.wire import CELLS, TYPES, Event

pytestmark = pytest.mark.anyio

WORDS: Final = "crossover-clockwork"
CODE: Final = Code(7, WORDS)
OURS, THEIRS = bytes(our_identity().node_id), their_identity().id
PRIVATE: Final = 2**200 + 7


class Reading:
    """The bytes of one stream of a reference peer."""

    def __init__(self, peer: ReferencePeer, stream: int) -> None:
        self._peer = peer
        self._stream = stream
        self._data = b""

    def next(self, size: int) -> bytes:
        """So many."""
        while len(self._data) < size:
            self._data += acts.wait_for(self._peer, self._is_data).payload
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    def _is_data(self, event: Event) -> bool:
        return (event.type, event.stream) == (TYPES["Data"], self._stream)


def aad(peer: ReferencePeer) -> bytes:
    """What binds the exchange to this session."""
    keys, suite = peer.session.keys, peer.session.agreement.suite
    assert keys is not None
    assert suite is not None
    return codes.context(7, suite.hash, keys.exporter, keys.session_id)


def taking(words: str) -> Callable[[ReferencePeer], bool]:
    """A taker; whether the giver had the same code."""

    def act(peer: ReferencePeer) -> bool:
        peer.handshake()
        stream, w = acts.open_stream(peer, LABEL), codes.scalar(7, words)
        pa, reading = codes.share(CURVE, w, PRIVATE, first=True), Reading(peer, stream)
        acts.send_data(peer, stream, (7).to_bytes(2) + pa)
        pb = reading.next(32)
        k = codes.shared(CURVE, w, PRIVATE, pb, first=True)
        ca, cb = codes.confirmations(codes.transcript(THEIRS, OURS, pa, pb, k, w), aad(peer))
        acts.send_data(peer, stream, ca)
        if words != WORDS:
            reset = acts.wait_for(peer, lambda event: event.type == TYPES["Reset"])
            return bool(reset.cells()[CELLS["code"]] != 65)
        right = reading.next(32) == cb
        acts.finish(peer, stream)
        return right

    return act


def giving(words: str) -> Callable[[ReferencePeer], bool]:
    """A giver; whether the taker had the same code."""

    def act(peer: ReferencePeer) -> bool:
        peer.handshake()
        opened = acts.wait_for(peer, lambda event: event.type == TYPES["Open"])
        assert opened.cells()[CELLS["label"]] == LABEL
        reading, giver = Reading(peer, opened.stream), codes.Giver(7, words)
        share = giver.begin("", 0.0, reading.next(34), OURS, THEIRS, aad(peer), PRIVATE)
        acts.send_data(peer, opened.stream, share)
        try:
            acts.send_data(peer, opened.stream, giver.confirm("", 1.0, reading.next(32)))
        except codes.Refused as refused:
            acts.reset(peer, opened.stream, refused.code)
            return False
        acts.finish(peer, opened.stream)
        acts.wait_for(peer, lambda event: event.type == TYPES["Finish"])
        return True

    return act


async def test_the_reference_takes_our_code(anyio_backend: str) -> None:
    async with our_node() as ours:
        giver = CodeListener(ours.node, CODE)
        assert not await ours.meet(taking("crossover-cobra"))
        assert await ours.meet(taking(WORDS))
        assert (await giver.taker()).node_id == THEIRS


@pytest.mark.parametrize("words", [WORDS, "crossover-cobra"])
async def test_we_take_the_reference_s_code(anyio_backend: str, words: str) -> None:
    async with our_node() as ours:
        outcome: list[object] = []

        async def take(peer: Peer) -> None:
            try:
                outcome.append(await take_code(ours.node, peer, CODE))
            except WrongCodeError as error:
                outcome.append(type(error))

        right = await ours.meet(giving(words), "responder", application=take)
        assert right == (words == WORDS)
        assert outcome == [THEIRS if right else WrongCodeError]
