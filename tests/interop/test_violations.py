"""Violations by the reference on an open connection to a node: some of each kind.

The exact code in Close, no delivery after the violation, waiting operations fail with the same
code, a log line, and other connections are unaffected. tests/node/protocol and the vectors of rules
test each rule.
"""

import socket
from collections.abc import Callable
from typing import Final
from unittest.mock import patch

import pytest

from parley import Peer
from parley._node.errors import PeerClosedError
from tests.interop.meeting import SIDES, our_config, their_config, with_bystander
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.handshake import Config
from tests.reference.peer import ReferencePeer, Side
from tests.reference.primitives import SigningKey
from tests.reference.recorded import seed
from tests.reference.wire import CODES, TYPES, Event, cells_payload
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

Fault = Callable[[ReferencePeer], object]
# A fault, the code of the end, and the rules of docs/protocol.md that it breaks.
Table = dict[str, tuple[Fault, str, str]]

LARGE: Final = 20_000
GREATEST: Final = 2**31 - 1


def app(peer: ReferencePeer, **how: object) -> bytes:
    """Return an application's event without a consumer, as sent."""
    return peer.send_event(1, 0, 64, 1, b"x", **how)  # type: ignore[arg-type]  # by name


def flip(at: int) -> Callable[[bytes], bytes]:
    """A change of one bit."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


def own(peer: ReferencePeer, number: int = 0) -> int:
    """The reference's own stream ids."""
    return (3 if peer.side == "initiator" else 2) + 2 * number


def foreign(peer: ReferencePeer) -> int:
    """Return the first ID of the node's streams, all of which are closed."""
    return 2 if peer.side == "initiator" else 3


def opened(peer: ReferencePeer) -> int:
    """A stream whose handler doesn't read."""
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


def reflected(peer: ReferencePeer) -> None:
    """An event of our node, sent back to it."""
    acts.call(peer, "parley.echo", "bystander")
    peer.send_frame(peer.channel.received[-1])


def stranger(peer: ReferencePeer) -> None:
    """A seal by another key."""
    peer.signer = SigningKey("ed25519", seed("stranger"))
    app(peer, sealed=True)


RECORDS: Table = {
    "a changed tag": (lambda p: app(p, corrupt=flip(-1)), "bad-record", "6.4, 6.15"),
    "a changed chain value": (lambda p: app(p, corrupt=flip(5)), "bad-record", "6.13"),
    "form 2": (lambda p: app(p, corrupt=lambda e: e[:4] + b"\2" + e[5:]), "bad-record", "6.12"),
    "an empty event": (lambda p: p.send_frame(b""), "bad-record", "6.14"),
    "a raw Close": (
        lambda p: p.send_frame(Event(0, 0, *TYPES["Close"], cells_payload(code=0)).raw),
        "bad-record",
        "5.74",
    ),
    "an event twice": (lambda p: p.send_frame(app(p)), "bad-record", "6.4"),
    "an event lost": (one_lost, "bad-record", "6.4"),
    "an event reflected": (reflected, "bad-record", "6.4"),
    "a length over the limit": (
        lambda p: p.send_raw((p.channel.limit + 1).to_bytes(4)),
        "frame-too-large",
        "2.13",
    ),
    "a payload over the limit": (
        lambda p: p.send_event(1, 0, 64, 1, bytes(LARGE + 1)),
        "frame-too-large",
        "2.14",
    ),
    "category 0": (lambda p: p.send_event(1, 0, 0, 1, b"x"), "protocol-error", "2.4"),
}

SEALS: Table = {
    "another's seal": (stranger, "seal-violation", "6.16"),
    "65 events unsealed": (
        lambda p: [app(p, sealed=False) for _ in range(65)],
        "seal-violation",
        "6.18",
    ),
    "a Close unsealed": (
        lambda p: p.send_event(0, 0, 1, 12, cells_payload(code=0), sealed=False),
        "seal-violation",
        "6.17",
    ),
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
    "1/13": (event(0, 1, 13), "protocol-error", "5.73"),
    "Ping on stream 1": (event(1, 1, 6, 1), "protocol-error", "2.43"),
    "Ping with a payload": (raw_payload("Ping", b"\xa0"), "protocol-error", "2.42"),
    "Close without code": (event(0, 1, 12, text="x"), "protocol-error", "2.42"),
    "KeyUpdate to epoch 2": (event(0, 1, 9, epoch=2), "protocol-error", "6.49"),
    "RekeyAnswer unasked": (event(0, 1, 11, share=b"\x09" * 32), "protocol-error", "6.40"),
    "RekeyOffer with a zero share": (event(0, 1, 10, share=bytes(32)), "protocol-error", "6.47"),
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


def after_finish(kind: str, **cells: object) -> Fault:
    """An event on a direction that its sender has finished."""

    def fault(peer: ReferencePeer) -> None:
        stream = opened(peer)
        acts.finish(peer, stream)
        peer.send(kind, stream, **cells)

    return fault


def flood(peer: ReferencePeer) -> None:
    """Data beyond the window: the handler never reads."""
    stream = opened(peer)
    for _ in range(4):
        peer.send_event(stream, 0, *TYPES["Data"], bytes(LARGE // 2))


def too_many(peer: ReferencePeer) -> None:
    """One stream more than were agreed."""
    for _ in range(5):
        opened(peer)


def batch_without_credit(peer: ReferencePeer) -> None:
    """The first event in it uses the rest of the window; the second exceeds it."""
    stream = opened(peer)
    some = Event(stream, 0, 64, 1, bytes(LARGE // 2))
    peer.send_event(stream, 0, *some.type, some.payload)
    acts.send_batch(peer, some, Event(stream, 0, 64, 1, b"x"))


STREAMS: Table = {
    "an empty Batch": (lambda p: p.send_event(opened(p), 0, 2, 6), "protocol-error", "8.61"),
    "a Batch whose last event has no credit": (batch_without_credit, "protocol-error", "8.65"),
    "Open of our node's id": (
        lambda p: p.send("Open", foreign(p), label="hold"),
        "protocol-error",
        "8.23",
    ),
    "Open twice": (
        lambda p: [p.send("Open", own(p), label="hold") for _ in range(2)],
        "protocol-error",
        "8.24",
    ),
    "Open without label": (lambda p: p.send("Open", own(p)), "protocol-error", "2.42"),
    "Window for a stream never opened": (
        lambda p: p.send("Window", 0, stream=own(p), credit=1),
        "protocol-error",
        "8.30",
    ),
    "credit above 2^31 - 1": (window(GREATEST), "protocol-error", "8.39"),
    "Data after Finish": (after_finish("Data"), "protocol-error", "8.26"),
    "Data without credit": (flood, "protocol-error", "8.37"),
    "a stream too many": (too_many, "too-many-streams", "8.13"),
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
        "2.17",
    ),
    "an async id twice on a stream": (twice_on_a_stream, "protocol-error", "2.17"),
}

PLAIN: Table = {
    "an empty event": (lambda p: p.send_frame(b""), "protocol-error", "2.3"),
    "Finish twice": (on_opened("Finish", times=2), "protocol-error", "8.26"),
    "an async id twice": REQUESTS["an async id twice"],
}

EACH: Table = {
    "a changed seal": (lambda p: app(p, flip_seal=True), "seal-violation", "6.16"),
    "a changed tag": (lambda p: app(p, corrupt=flip(-1)), "bad-record", "6.15"),
    "an event lost": (one_lost, "bad-record", "6.4"),
}

TABLES: Final = (RECORDS, SEALS, CONNECTION, STREAMS, REQUESTS, PLAIN, EACH)
LIMITS = {"max_payload": LARGE, "stream_window": LARGE, "max_streams": 4}
ENCRYPTED = their_config(limits=LIMITS)
CASES = [
    pytest.param(config, fault, code, id=f"{group}-{rules} {name}")
    for group, config, table in (
        ("records", ENCRYPTED, RECORDS),
        ("seals", ENCRYPTED, SEALS),
        ("connection", ENCRYPTED, CONNECTION),
        ("streams", ENCRYPTED, STREAMS),
        ("requests", ENCRYPTED, REQUESTS),
        ("each", their_config(limits=LIMITS, sealing=("each",)), EACH),
        ("plain", their_config(limits=LIMITS, encrypted=False, plaintext=True), PLAIN),
    )
    for name, (fault, code, rules) in table.items()
]


def say_more(peer: ReferencePeer) -> None:
    """A call after the fault, which must not be heard."""
    try:
        peer.send("Call", 1, 99, topic="parley.echo", data="after the fault")
    except ConnectionLost:
        return  # our node was faster


@sweep(("config", "fault", "code"), CASES)
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
    """Return whether only the end follows Close."""
    return not sock.recv(1)
