"""Row 17, decoder bombs: bytes that would exhaust their reader are refused cheaply.

The decoder raises its own error type, in little time and memory. tests/lbm/test_codec_bombs.py
(`test_bombs_are_refused_cheaply`) proves it for the decoder alone: nesting, declared sizes, counts,
tags. These tests cover the other mistakes of the row, and every bomb in every place where a
connection decodes.
"""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parley import CallRefused, Peer
from parley._lbm.codec import decode_value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import HANDSHAKE_LIMITS
from parley._node.protocol.codes import CloseCode, ResultCode
from tests.interop.meeting import with_bystander
from tests.lbm.test_codec_bombs import BOMBS, MEBIBYTE, refused_cheaply
from tests.node.protocol.pair import BOB, Pair, assert_violation, make_config, open_pair
from tests.reference import acts
from tests.reference.peer import ReferencePeer
from tests.reference.wire import CELLS, RESULT_CODES, TYPES, Event

# Cases that are tested only here: repeated keys and invalid text, small and large.
KEYS_AND_TEXTS = {
    "a key twice": "a2 01 00 01 00",
    "a key 60,000 times": "b9 ea60" + "0100" * 60_000,
    "a text key twice": "a2 6161 00 6161 00",
    "a text key 40,000 times": "b9 9c40" + "616100" * 40_000,
    "the last of 20,000 keys twice": "b9 4e21"
    + "".join(f"19{0x100 + i:04x}00" for i in [*range(20_000), 19_999]),
    "a key twice, in an array": "81 a2 01 00 01 00",
    "a continuation byte": "61 80",
    "half a character": "62 c3 61",
    "an overlong slash": "62 c0af",
    "a surrogate": "63 eda080",
    "above U+10FFFF": "64 f4908080",
    "1 MB of invalid text": "7a 000f4240" + "ff" * 1_000_000,
    "1 MB of text, the last byte wrong": "7a 000f4240" + "61" * 999_999 + "ff",
    "a key that is no text": "a1 61 ff 00",
    "20,000 texts, the last one wrong": "99 4e20" + "6161" * 19_999 + "61ff",
}
ALL = {**BOMBS, **KEYS_AND_TEXTS}
# Memory that a reader may use for refused bytes: a multiple of their size, and a constant.
MOST_MEMORY = 16 * MEBIBYTE
MOST_SECONDS = 5.0


@contextmanager
def cheaply() -> Iterator[None]:
    """Check that the block takes little time and memory.

    The limits are far above normal measurements, and far below the cost of a decoded bomb.
    """
    tracemalloc.start()
    started = time.perf_counter()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert time.perf_counter() - started < MOST_SECONDS


@pytest.mark.parametrize("text", KEYS_AND_TEXTS.values(), ids=KEYS_AND_TEXTS.keys())
def test_repeated_keys_and_texts_that_are_none_are_refused_cheaply(text: str) -> None:
    value = bytes.fromhex(text)
    with pytest.raises(LbmDecodeError):
        decode_value(value)
    with pytest.raises(LbmDecodeError):
        decode_value(value, HANDSHAKE_LIMITS)
    refused_cheaply(b"\xa1\x16" + value)
    refused_cheaply(b"\xa1\x16\x88" + value * 8)


# In the places where a connection decodes.


def payload(text: str, size: int) -> bytes:
    """Return a payload with the bomb in its `data`, cut to the permitted size."""
    return (b"\xa1\x16" + bytes.fromhex(text))[:size]


@pytest.mark.parametrize("kind", ["Hello", "Reply", "Retry", "Reject"])
@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_in_place_of_a_handshake(text: str, kind: str) -> None:
    pair = Pair(make_config(), make_config(BOB))
    receiver = pair.b if kind == "Hello" else pair.a
    receiver.take(pair.now)
    event = Event(0, 0, *TYPES[kind], payload(text, 16_000)).raw
    with cheaply():
        pair.deliver(receiver, len(event).to_bytes(4) + event)
    assert receiver.code == CloseCode.PROTOCOL_ERROR
    assert not receiver.events


@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_over_the_frame_limit_not_a_byte_is_decoded(text: str) -> None:
    """An excessive length ends the connection before the announced bytes are read."""
    event = Event(0, 0, *TYPES["Hello"], payload(text, MEBIBYTE).ljust(20_000, b"\xff")).raw
    pair = Pair(make_config(), make_config(BOB))
    pair.deliver(pair.b, len(event).to_bytes(4))
    assert pair.b.code == CloseCode.FRAME_TOO_LARGE


ON_STREAM_0 = ("Window", "Reset", "KeyUpdate", "RekeyOffer", "RekeyAnswer", "Close")


@pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
def test_in_what_the_core_reads_itself(text: str) -> None:
    """The bombs are sent under valid keys, in each event of categories 1 and 2 that has cells."""
    for kind in (*ON_STREAM_0, "Open"):
        pair = open_pair()
        stream, size = (3, MEBIBYTE) if kind == "Open" else (0, 4_096)
        with cheaply():
            pair.inject(pair.a, stream, *TYPES[kind], payload(text, size), sealed=True)
        assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


# Through a whole node, with an authenticated peer and another peer that must not be affected.


# A request is answered with code 23, other events are dropped, and the connection stays open.
REQUESTS = ("Call", "Subscribe", "Unsubscribe")
OTHERS = ("Notify", "Notes", "Result", "Chunk", "Cancel", "Emit", "Named Reply", "Error", "End")


@pytest.mark.anyio
async def test_in_requests_answers_and_notes() -> None:
    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        codes = []
        for text in ALL.values():
            for name in OTHERS:
                peer.send_event(1, 0, *TYPES[name], payload(text, 100_000))
            for number, name in enumerate(REQUESTS, 1):
                peer.send_event(1, number, *TYPES[name], payload(text, 100_000))
            for number, _ in enumerate(REQUESTS, 1):
                codes.append(acts.result(peer, number)[CELLS["code"]])
        assert acts.call(peer, "parley.echo", "still here")[CELLS["data"]] == "still here"
        acts.close(peer)
        return codes

    async with with_bystander() as ours:
        codes = await ours.meet(act)
        assert codes == [RESULT_CODES["malformed"]] * len(REQUESTS) * len(ALL)
        assert await ours.ended() == "normal"


@pytest.mark.anyio
async def test_in_the_answer_to_our_call() -> None:
    """Only this call fails."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for text in ALL.values():
            call = acts.wait_for(peer, lambda event: event.type == TYPES["Call"])
            peer.send_event(1, call.async_id, *TYPES["Result"], payload(text, 100_000))
        acts.serve(peer)

    async def application(peer: Peer) -> None:
        for _ in ALL:
            with pytest.raises(CallRefused) as refused:
                await peer.call("anything", timeout=None)
            assert refused.value.code == ResultCode.MALFORMED
        with pytest.raises(CallRefused, match="not found"):
            await peer.call("still here")
        await peer.close()

    async with with_bystander() as ours:
        await ours.meet(act, "responder", application=application)
