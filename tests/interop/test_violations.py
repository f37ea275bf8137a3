"""Every rule that the reference can break once the connection is open, against our node.

The exact code in Close, nothing delivered that came after the fault, what waited
on the connection failed with the same code, a line in the log, and no other connection hurt.
"""

import socket
from collections.abc import Callable
from typing import Final
from unittest.mock import patch

import pytest

from parley import Peer
from parley._node.errors import PeerClosedError
from tests.interop.meeting import SIDES, our_config, their_config, with_bystander
from tests.reference import acts, cbor
from tests.reference.channel import ConnectionLost
from tests.reference.handshake import Config
from tests.reference.peer import ReferencePeer, Side
from tests.reference.primitives import SigningKey
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, CODES, TYPES, Event, cells_payload
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

Fault = Callable[[ReferencePeer], object]
Table = dict[str, tuple[Fault, str]]

LARGE: Final = 20_000
GREATEST: Final = 2**31 - 1


def app(peer: ReferencePeer, **how: object) -> bytes:
    """An application's event that nobody takes, as sent."""
    return peer.send_event(1, 0, 64, 1, b"x", **how)  # type: ignore[arg-type]  # by name


def flip(at: int) -> Callable[[bytes], bytes]:
    """A change of one bit."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def own(peer: ReferencePeer, number: int = 0) -> int:
    """The reference's own stream ids."""
    return (3 if peer.side == "initiator" else 2) + 2 * number


def foreign(peer: ReferencePeer) -> int:
    """The first id of our node's streams, none of which is open."""
    return 2 if peer.side == "initiator" else 3


def opened(peer: ReferencePeer) -> int:
    """A stream whose handler reads nothing."""
    return acts.open_stream(peer, "hold")


def withheld(peer: ReferencePeer, count: int) -> list[bytes]:
    """Frames that are encrypted and not sent."""
    frames: list[bytes] = []
    with patch.object(peer.channel, "send_raw", frames.append):
        for _ in range(count):
            app(peer)
    return frames


def one_lost(peer: ReferencePeer) -> None:
    """An event that never arrives, and the next."""
    withheld(peer, 1)
    app(peer)


def exchanged(peer: ReferencePeer) -> None:
    """Two events in another order."""
    one, two = withheld(peer, 2)
    peer.send_raw(two)
    peer.send_raw(one)


def reflected(peer: ReferencePeer) -> None:
    """An event of our node, sent back to it."""
    acts.call(peer, "parley.echo", "bystander")
    peer.send_frame(peer.channel.received[-1])


def stranger(peer: ReferencePeer) -> None:
    """A seal by another key."""
    peer.signer = SigningKey("ed25519", seed("stranger"))
    app(peer, sealed=True)


def sized(size: int, peer: ReferencePeer, stream: int) -> bytes:
    """A Window's payload of a size, by a cell that nobody knows."""
    cells = {CELLS["stream"]: stream, CELLS["credit"]: 1}
    bare = len(cbor.encode_payload({**cells, 300: bytes(1000)})) - 1000
    return cbor.encode_payload({**cells, 300: bytes(size - bare)})


RECORDS: Table = {
    "a changed tag": (lambda p: app(p, corrupt=flip(-1)), "bad-record"),
    "a changed ciphertext": (lambda p: app(p, corrupt=flip(22)), "bad-record"),
    "a changed chain value": (lambda p: app(p, corrupt=flip(5)), "bad-record"),
    "the end of the chain value": (lambda p: app(p, corrupt=flip(20)), "bad-record"),
    "a changed stream, open": (lambda p: app(p, corrupt=flip(3)), "bad-record"),
    "form 2": (lambda p: app(p, corrupt=lambda e: e[:4] + b"\2" + e[5:]), "bad-record"),
    "form 255": (lambda p: app(p, corrupt=lambda e: e[:4] + b"\xff" + e[5:]), "bad-record"),
    "form 0 for 1": (lambda p: app(p, sealed=True, corrupt=flip(4)), "bad-record"),
    "form 1 for 0": (lambda p: app(p, corrupt=flip(4)), "bad-record"),
    "an empty event": (lambda p: p.send_frame(b""), "bad-record"),
    "one byte": (lambda p: p.send_frame(b"\0"), "bad-record"),
    "three bytes": (lambda p: p.send_frame(b"\0\0\0"), "bad-record"),
    "a stream id": (lambda p: p.send_frame(b"\0\0\0\1"), "bad-record"),
    "41 bytes in form 0": (lambda p: p.send_frame(b"\0\0\0\1" + bytes(37)), "bad-record"),
    "one byte less": (lambda p: app(p, corrupt=lambda e: e[:-1]), "bad-record"),
    "one byte more": (lambda p: app(p, corrupt=lambda e: e + b"\0"), "bad-record"),
    "a raw event": (lambda p: p.send_frame(Event(1, 0, 64, 1, bytes(99)).raw), "bad-record"),
    "a raw Close": (
        lambda p: p.send_frame(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
        "bad-record",
    ),
    "a raw Hello": (lambda p: p.send_frame(p.channel.sent[0]), "bad-record"),
    "an event twice": (lambda p: p.send_frame(app(p)), "bad-record"),
    "an event lost": (one_lost, "bad-record"),
    "two events exchanged": (exchanged, "bad-record"),
    "an event reflected": (reflected, "bad-record"),
    "a length of 2^32 - 1": (lambda p: p.send_raw(b"\xff" * 4), "frame-too-large"),
    "a length over the limit": (
        lambda p: p.send_raw((p.channel.limit + 1).to_bytes(4)),
        "frame-too-large",
    ),
    "a length at the limit": (lambda p: p.send_frame(bytes(p.channel.limit)), "bad-record"),
    "a payload over the limit": (
        lambda p: p.send_event(1, 0, 64, 1, bytes(LARGE + 1)),
        "frame-too-large",
    ),
    "on stream 0, 4,097 bytes": (
        lambda p: p.send_event(0, 0, *TYPES["Window"], sized(4_097, p, opened(p))),
        "frame-too-large",
    ),
    "category 0": (lambda p: p.send_event(1, 0, 0, 1, b"x"), "protocol-error"),
    "subcategory 0": (lambda p: p.send_event(1, 0, 64, 0, b"x"), "protocol-error"),
    "category 0 on stream 0": (lambda p: p.send_event(0, 0, 0, 1, b"x"), "protocol-error"),
}

SEALS: Table = {
    "a changed seal": (lambda p: app(p, sealed=True, flip_seal=True), "seal-violation"),
    "a changed seal's end": (lambda p: app(p, sealed=True, corrupt=flip(84)), "seal-violation"),
    "another's seal": (stranger, "seal-violation"),
    "65 events unsealed": (
        lambda p: [app(p, sealed=False) for _ in range(65)],
        "seal-violation",
    ),
    "a Seal unsealed": (lambda p: p.send_event(0, 0, 1, 8, sealed=False), "seal-violation"),
    "a Seal with a wrong seal": (
        lambda p: p.send_event(0, 0, 1, 8, flip_seal=True),
        "seal-violation",
    ),
    "a Close unsealed": (
        lambda p: p.send_event(0, 0, 1, 12, cells_payload(code=0), sealed=False),
        "seal-violation",
    ),
    "a Close with a wrong seal": (
        lambda p: p.send_event(0, 0, 1, 12, cells_payload(code=0), flip_seal=True),
        "seal-violation",
    ),
    "a KeyUpdate unsealed": (
        lambda p: p.send_event(0, 0, 1, 9, cells_payload(epoch=1), sealed=False),
        "seal-violation",
    ),
    "a RekeyOffer unsealed": (
        lambda p: p.send_event(0, 0, 1, 10, cells_payload(share=b"\x09" * 32), sealed=False),
        "seal-violation",
    ),
    "a RekeyAnswer unsealed": (
        lambda p: p.send_event(0, 0, 1, 11, cells_payload(share=b"\x09" * 32), sealed=False),
        "seal-violation",
    ),
    "a Proof unsealed": (lambda p: p.send_event(0, 0, 1, 3, sealed=False), "seal-violation"),
}


def event(
    stream: int, category: int, subcategory: int, async_id: int = 0, /, **cells: object
) -> Fault:
    """An event with these cells."""
    payload = cells_payload(**cells) if cells else b""
    return lambda p: p.send_event(stream, async_id, category, subcategory, payload)


def raw_payload(kind: str, payload: bytes) -> Fault:
    """An event of stream 0 with any payload."""
    return lambda p: p.send_event(0, 1, *TYPES[kind], payload)


CONNECTION: Table = {
    **{
        f"{name} after the handshake": (event(0, *TYPES[name], code=2, text=""), "protocol-error")
        for name in ("Hello", "Reply", "Proof", "Retry", "Reject")
    },
    "1/13": (event(0, 1, 13), "protocol-error"),
    "1/255": (event(0, 1, 255), "protocol-error"),
    "Ping on stream 1": (event(1, 1, 6, 1), "protocol-error"),
    "Pong on stream 1": (event(1, 1, 7, 1), "protocol-error"),
    "Close on stream 1": (event(1, 1, 12, code=0), "protocol-error"),
    "KeyUpdate on stream 1": (event(1, 1, 9, epoch=1), "protocol-error"),
    "Ping on an open stream": (lambda p: p.send_event(opened(p), 1, 1, 6), "protocol-error"),
    "1/13 on stream 1": (event(1, 1, 13), "protocol-error"),
    "Ping with a payload": (raw_payload("Ping", b"\xa0"), "protocol-error"),
    "Pong with a payload": (raw_payload("Pong", b"\xa0"), "protocol-error"),
    "Seal with a payload": (raw_payload("Seal", b"\xa0"), "protocol-error"),
    "Close without code": (event(0, 1, 12, text="x"), "protocol-error"),
    "Close without payload": (event(0, 1, 12), "protocol-error"),
    "Close with a text for a code": (event(0, 1, 12, code="0"), "protocol-error"),
    "Close with bytes for a text": (event(0, 1, 12, code=0, text=b"x"), "protocol-error"),
    "Close that is no LBM": (raw_payload("Close", b"junk"), "protocol-error"),
    "KeyUpdate to epoch 0": (event(0, 1, 9, epoch=0), "protocol-error"),
    "KeyUpdate to epoch 2": (event(0, 1, 9, epoch=2), "protocol-error"),
    "KeyUpdate without epoch": (event(0, 1, 9), "protocol-error"),
    "KeyUpdate of no rekey": (event(0, 1, 9, epoch=1, rekey=1), "protocol-error"),
    "RekeyAnswer unasked": (event(0, 1, 11, share=b"\x09" * 32), "protocol-error"),
    "RekeyOffer without share": (event(0, 1, 10), "protocol-error"),
    "RekeyOffer with a short share": (event(0, 1, 10, share=bytes(31)), "protocol-error"),
    "RekeyOffer with a zero share": (event(0, 1, 10, share=bytes(32)), "protocol-error"),
    "RekeyOffer with a text": (event(0, 1, 10, share="x" * 32), "protocol-error"),
    **{
        f"{category}/{subcategory} on stream 0": (event(0, category, subcategory), "protocol-error")
        for category, subcategory in [
            (2, 1), (2, 3), (2, 5), (2, 6), (2, 255), (3, 1), (3, 5), (3, 6), (3, 9),
            (4, 1), (5, 1), (9, 1), (64, 1), (255, 255),
        ]
    },
}  # fmt: skip


def window(credit: object = 1, **cells: object) -> Fault:
    """Window for an open stream."""

    def fault(peer: ReferencePeer) -> None:
        peer.send("Window", 0, stream=opened(peer), credit=credit, **cells)

    return fault


def on_opened(kind: str, payload: bytes = b"", times: int = 1) -> Fault:
    """An event on an open stream."""

    def fault(peer: ReferencePeer) -> None:
        stream = opened(peer)
        for _ in range(times):
            peer.send_event(stream, 0, *TYPES[kind], payload)

    return fault


def never_opened(kind: str) -> Fault:
    """An event on the next id of the reference's."""
    return lambda p: p.send_event(own(p), 1, *TYPES[kind], cells_payload(topic="hold"))


def after_finish(kind: str, **cells: object) -> Fault:
    """An event on a direction that its sender has finished."""

    def fault(peer: ReferencePeer) -> None:
        stream = opened(peer)
        acts.finish(peer, stream)
        peer.send(kind, stream, **cells)

    return fault


def after_reset(peer: ReferencePeer) -> None:
    """Data on a stream that its sender has reset."""
    stream = opened(peer)
    acts.reset(peer, stream, 32)
    peer.send_event(stream, 0, *TYPES["Data"], b"x")


def gone(peer: ReferencePeer) -> int:
    """A stream that both sides have finished."""
    stream = acts.open_stream(peer, "echo")
    acts.finish(peer, stream)
    acts.wait_for(peer, lambda e: e.type == TYPES["Finish"])
    return stream


def flood(peer: ReferencePeer) -> None:
    """Data beyond the window: the handler never reads."""
    stream = opened(peer)
    for _ in range(4):
        peer.send_event(stream, 0, *TYPES["Data"], bytes(LARGE // 2))


def calls_without_credit(peer: ReferencePeer) -> None:
    """Calls on a stream cost credit too, and are not consumed while they wait."""
    stream = opened(peer)
    for number in range(1, 5):
        peer.send("Call", stream, number, topic="hold", data=bytes(LARGE // 2))


def too_many(peer: ReferencePeer) -> None:
    """One stream more than were agreed."""
    for _ in range(5):
        opened(peer)


def batch_after_finish(peer: ReferencePeer) -> None:
    """Two events at once on a direction that its sender has finished."""
    stream = opened(peer)
    acts.finish(peer, stream)
    acts.send_batch(peer, *[Event(stream, 0, 64, 1, b"x")] * 2)


def batch_without_credit(peer: ReferencePeer) -> None:
    """The first event in it uses up what is left of the window; the second is one too many."""
    stream = opened(peer)
    some = Event(stream, 0, 64, 1, bytes(LARGE // 2))
    peer.send_event(stream, 0, *some.type, some.payload)
    acts.send_batch(peer, some, Event(stream, 0, 64, 1, b"x"))


NOTE: Final = Event(1, 0, 64, 1, b"x")
STREAMS: Table = {
    "2/255": (event(1, 2, 255), "protocol-error"),
    "a Batch of nothing": (lambda p: p.send_event(opened(p), 0, 2, 6), "protocol-error"),
    "a Batch of one": (lambda p: acts.send_batch(p, NOTE), "protocol-error"),
    "a Ping in a Batch": (lambda p: acts.send_batch(p, NOTE, Event(1, 1, 1, 6)), "protocol-error"),
    "a Batch after Finish": (batch_after_finish, "protocol-error"),
    "a Batch whose last event has no credit": (batch_without_credit, "protocol-error"),
    "Open on stream 1": (event(1, 2, 1, label="hold"), "protocol-error"),
    "Finish on stream 1": (event(1, 2, 3), "protocol-error"),
    "Window on stream 1": (event(1, 2, 2, stream=1, credit=1), "protocol-error"),
    "Reset on stream 1": (event(1, 2, 4, stream=3, code=0), "protocol-error"),
    "Reset of stream 0": (event(0, 2, 4, stream=0, code=0), "protocol-error"),
    "Reset of stream 1": (event(0, 2, 4, stream=1, code=0), "protocol-error"),
    "Window for stream 0": (event(0, 2, 2, stream=0, credit=1), "protocol-error"),
    "Window for stream 1": (event(0, 2, 2, stream=1, credit=1), "protocol-error"),
    "Window for Chunks on stream 0": (
        event(0, 2, 2, stream=0, credit=1, request=1),
        "protocol-error",
    ),
    "Open of our node's id": (
        lambda p: p.send("Open", foreign(p), label="hold"),
        "protocol-error",
    ),
    "Open of an id passed over": (
        lambda p: [p.send("Open", own(p, n), label="hold") for n in (1, 0)],
        "protocol-error",
    ),
    "Open twice": (
        lambda p: [p.send("Open", own(p), label="hold") for _ in range(2)],
        "protocol-error",
    ),
    "Open again after the end": (
        lambda p: p.send("Open", gone(p), label="hold"),
        "protocol-error",
    ),
    "Open without label": (lambda p: p.send("Open", own(p)), "protocol-error"),
    "Open with window alone": (lambda p: p.send("Open", own(p), window=5), "protocol-error"),
    "Open with bytes": (lambda p: p.send("Open", own(p), label=b"hold"), "protocol-error"),
    "Open with window 0": (
        lambda p: p.send("Open", own(p), label="hold", window=0),
        "protocol-error",
    ),
    "Open with window 2^31": (
        lambda p: p.send("Open", own(p), label="hold", window=2**31),
        "protocol-error",
    ),
    "Open with a text for window": (
        lambda p: p.send("Open", own(p), label="hold", window="5"),
        "protocol-error",
    ),
    "Open that is no LBM": (
        lambda p: p.send_event(own(p), 0, *TYPES["Open"], b"junk"),
        "protocol-error",
    ),
    **{
        f"{name} on a stream never opened": (never_opened(name), "protocol-error")
        for name in ("Data", "Finish", "Call", "Result", "Emit", "Notify")
    },
    "64/1 on a stream never opened": (
        lambda p: p.send_event(own(p), 0, 64, 1, b"x"),
        "protocol-error",
    ),
    "Data on a stream of ours never opened": (
        lambda p: p.send_event(foreign(p), 0, *TYPES["Data"], b"x"),
        "protocol-error",
    ),
    "Window for a stream never opened": (
        lambda p: p.send("Window", 0, stream=own(p), credit=1),
        "protocol-error",
    ),
    "Window for one of ours never opened": (
        lambda p: p.send("Window", 0, stream=foreign(p), credit=1),
        "protocol-error",
    ),
    "Window for Chunks on a stream never opened": (
        lambda p: p.send("Window", 0, stream=own(p), credit=1, request=1),
        "protocol-error",
    ),
    "Reset of a stream never opened": (
        lambda p: p.send("Reset", 0, stream=own(p), code=0),
        "protocol-error",
    ),
    "Reset without code": (lambda p: p.send("Reset", 0, stream=opened(p)), "protocol-error"),
    "Reset without stream": (lambda p: p.send("Reset", 0, code=0), "protocol-error"),
    "Reset with a text for code": (
        lambda p: p.send("Reset", 0, stream=opened(p), code="0"),
        "protocol-error",
    ),
    "Window without credit": (lambda p: p.send("Window", 0, stream=opened(p)), "protocol-error"),
    "Window without stream": (lambda p: p.send("Window", 0, credit=1), "protocol-error"),
    "Window that is no LBM": (raw_payload("Window", b"junk"), "protocol-error"),
    "Window with negative credit": (window(-1), "protocol-error"),
    "Window of 2^31": (window(2**31), "protocol-error"),
    "credit above 2^31 - 1": (window(GREATEST), "protocol-error"),
    "Window for request 0": (window(1, request=0), "protocol-error"),
    "Window for request 65,536": (window(1, request=65_536), "protocol-error"),
    "Finish with a payload": (on_opened("Finish", b"\xa0"), "protocol-error"),
    "Finish twice": (on_opened("Finish", times=2), "protocol-error"),
    "Data after Finish": (after_finish("Data"), "protocol-error"),
    "Open after Finish": (after_finish("Open", label="hold"), "protocol-error"),
    "Call after Finish": (after_finish("Call", topic="parley.echo"), "protocol-error"),
    "Data after Reset": (after_reset, "protocol-error"),
    "Data on a stream that is gone": (
        lambda p: p.send_event(gone(p), 0, *TYPES["Data"], b"x"),
        "protocol-error",
    ),
    "Data without credit": (flood, "protocol-error"),
    "Calls without credit": (calls_without_credit, "protocol-error"),
    "a stream too many": (too_many, "too-many-streams"),
}


def twice_on_a_stream(peer: ReferencePeer) -> None:
    """One async id for two requests of a stream; on two streams it may be used."""
    stream = opened(peer)
    for number in (1, stream, stream):
        peer.send("Call", number, 7, topic="hold")


REQUESTS: Table = {
    "an async id twice": (
        lambda p: [p.send("Call", 1, 7, topic="hold") for _ in range(2)],
        "protocol-error",
    ),
    "an async id twice, of another topic": (
        lambda p: [p.send("Call", 1, 7, topic=topic) for topic in ("hold", "parley.echo")],
        "protocol-error",
    ),
    "an async id twice, of no topic": (
        lambda p: [p.send("Call", 1, 7, topic=topic) for topic in ("hold", "nobody")],
        "protocol-error",
    ),
    "an async id twice, malformed": (
        lambda p: [p.send("Call", 1, 7, topic=topic) for topic in ("hold", 5)],
        "protocol-error",
    ),
    "an async id twice, Subscribe": (
        lambda p: [p.send(kind, 1, 7, topic="hold") for kind in ("Call", "Subscribe")],
        "protocol-error",
    ),
    "an async id twice, Emit": (
        lambda p: (p.send("Call", 1, 7, topic="hold"), p.send("Emit", 1, 7, name="x")),
        "protocol-error",
    ),
    "an async id twice on a stream": (twice_on_a_stream, "protocol-error"),
}

PLAIN: Table = {
    **{
        f"{name} in plaintext": (event(0, *TYPES[name], epoch=1, share=bytes(32)), "protocol-error")
        for name in ("Seal", "KeyUpdate", "RekeyOffer", "RekeyAnswer", "Proof", "Hello")
    },
    "Seal": (event(0, *TYPES["Seal"]), "protocol-error"),
    "an empty event": (lambda p: p.send_frame(b""), "protocol-error"),
    "eight bytes": (lambda p: p.send_frame(b"\0\0\0\1\0\0\x40\1"), "protocol-error"),
    "category 0": (event(1, 0, 1), "protocol-error"),
    "subcategory 0": (event(1, 64, 0), "protocol-error"),
    "a length over the limit": (
        lambda p: p.send_raw((p.channel.limit + 1).to_bytes(4)),
        "frame-too-large",
    ),
    "on stream 0, 4,097 bytes": (
        lambda p: p.send_event(0, 0, *TYPES["Window"], sized(4_097, p, opened(p))),
        "frame-too-large",
    ),
    "Ping on stream 1": (event(1, 1, 6, 1), "protocol-error"),
    "Finish twice": (on_opened("Finish", times=2), "protocol-error"),
    "Data without credit": (flood, "protocol-error"),
    "an async id twice": REQUESTS["an async id twice"],
}

EACH: Table = {
    "a changed seal": (lambda p: app(p, flip_seal=True), "seal-violation"),
    "another's seal": (stranger, "seal-violation"),
    "a changed seal of Close": (
        lambda p: p.send_event(0, 0, 1, 12, cells_payload(code=0), flip_seal=True),
        "seal-violation",
    ),
    "a changed tag": (lambda p: app(p, corrupt=flip(-1)), "bad-record"),
    "one byte less": (lambda p: app(p, corrupt=lambda e: e[:-1]), "bad-record"),
    "too short": (lambda p: p.send_frame(b"\0\0\0\1" + bytes(84)), "bad-record"),
    "a raw event": (lambda p: p.send_frame(Event(1, 0, 64, 1, bytes(99)).raw), "bad-record"),
    "an event twice": (lambda p: p.send_frame(app(p)), "bad-record"),
    "an event lost": (one_lost, "bad-record"),
    "two events exchanged": (exchanged, "bad-record"),
    "a length over the limit": (
        lambda p: p.send_raw((p.channel.limit + 1).to_bytes(4)),
        "frame-too-large",
    ),
    "1/13": CONNECTION["1/13"],
    "Data without credit": (flood, "protocol-error"),
}

LIMITS = {"max_payload": LARGE, "stream_window": LARGE, "max_streams": 4}
ENCRYPTED = their_config(limits=LIMITS)
CASES = [
    pytest.param(config, fault, code, id=f"{group}-{name}")
    for group, config, table in (
        ("records", ENCRYPTED, RECORDS),
        ("seals", ENCRYPTED, SEALS),
        ("connection", ENCRYPTED, CONNECTION),
        ("streams", ENCRYPTED, STREAMS),
        ("requests", ENCRYPTED, REQUESTS),
        ("each", their_config(limits=LIMITS, sealing=("each",)), EACH),
        ("plain", their_config(limits=LIMITS, encrypted=False, plaintext=True), PLAIN),
    )
    for name, (fault, code) in table.items()
]


def say_more(peer: ReferencePeer) -> None:
    """A call after the fault, which must not be heard."""
    try:
        peer.send("Call", 1, 99, topic="parley.echo", data="after the fault")
    except ConnectionLost:
        return  # our node was faster


@sweep(("config", "fault", "code"), CASES, parts=8)
@sweep("side", SIDES)
async def test_a_violation_ends_its_connection_and_no_other(
    side: Side, config: Config, fault: Fault, code: str
) -> None:
    def act(peer: ReferencePeer) -> tuple[str, bool]:
        peer.handshake()
        fault(peer)
        say_more(peer)
        closed = acts.closed_with(peer)
        peer.channel.finish()
        return closed, ends(peer.channel.sock)

    async def application(peer: Peer) -> None:
        with pytest.raises(PeerClosedError) as error:
            await peer.call("never answered", timeout=None)
        assert error.value.code == CODES[code]
        assert (await peer.closed()).code == CODES[code]

    plaintext = "never" if config.encrypted else "only"
    async with with_bystander(our_config(plaintext=plaintext)) as ours:
        closed, ended = await ours.meet(act, side, config=config, application=application)
        assert closed == code
        assert ended
        assert ours.refusal is None
        assert await ours.ended() == code
        assert not [data for _, data in ours.called if data == "after the fault"]
        assert sum("ended:" in line for line in ours.log if line.startswith("WARNING")) == 1


def ends(sock: socket.socket) -> bool:
    """Whether nothing follows Close but the end."""
    return not sock.recv(1)
