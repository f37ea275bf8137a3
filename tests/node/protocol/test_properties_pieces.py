"""Tests of how the transport splits bytes: reports and answers must not depend on it.

All randomness is fixed, so that two cores with the same input can be compared report by report and
byte by byte.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import encode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.frames import FrameReader, frame
from parley._node.protocol.reports import (
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
    Report,
)
from tests.node.protocol.pair import ALICE, BOB, START, fed, make_config
from tests.sweep import sweep

INITIATOR, RESPONDER = True, False


@contextmanager
def nothing_random() -> Iterator[None]:
    """Make every ephemeral key the same."""
    with patch("parley._crypto.key_exchange.random_bytes", lambda size: b"\x07" * size):
        yield


def make_core(initiator: bool, sealing: str, deliver: str) -> Connection:
    plain = sealing == "plaintext"
    config = make_config(
        ALICE if initiator else BOB,
        algorithms={"kex": ("x25519",), "sealing": ("chain" if plain else sealing,)},
        plaintext="only" if plain else "never",
        deliver=deliver,
        seal_events=3,
        stream_window=4096,
    )
    return Connection(config, initiator=initiator, now=START, random=lambda size: b"\x05" * size)


def take(core: Connection) -> bytes:
    return b"".join(iter(lambda: core.data_to_send(START), b""))


def collect(core: Connection) -> list[Report]:
    got: list[Report] = []
    while reports := core.reports():
        got += reports
        if any(isinstance(report, PeerIdentified) for report in reports):
            core.accept_peer(START)
            core.receive_data(b"", START)  # bytes that followed the Proof
    return got


def act(core: Connection, number: int) -> None:
    """Perform one action of the only side with an application."""
    encrypted = core.config.plaintext == "never"
    match number:
        case 0 | 4:
            for serial in range(5):
                core.send(1, serial, 64, 1, encode({300: serial}), seal=serial == 2)
        case 1:
            stream = core.open_stream("pieces")
            core.send_data(stream, b"data" * 200)
            core.send(stream, 0, 3, 7, b"a chunk", lbm=False)
            core.finish_stream(stream)
        case 2 if encrypted:
            core.rekey(START)
        case 3 if encrypted:
            core.update_keys(START)
        case 5:
            core.ping(START)
            core.reset_stream(core.open_stream("reset"), 32, "changed my mind")
        case 6:
            core.close(START, 1, "that was all")


@cache
def recorded(receiver: bool, sealing: str) -> bytes:
    """Return what the other side receives in a whole connection."""
    with nothing_random():
        reader = make_core(receiver, sealing, "opened")
        writer = make_core(not receiver, sealing, "opened")
        received = b""
        for number in range(-1, 7):
            if number >= 0:
                act(writer, number)
            while (there := take(writer)) + (back := take(reader)):
                received += there
                reader.receive_data(there, START)
                collect(reader)
                writer.receive_data(back, START)
                collect(writer)
    return received


def outcome(
    receiver: bool, sealing: str, deliver: str, pieces: list[bytes]
) -> tuple[list[Report], bytes, str]:
    """Return the reports, output and state of a core after `pieces`."""
    with nothing_random():
        core = make_core(receiver, sealing, deliver)
        reports: list[Report] = []
        hello = take(core)  # before any input
        for piece in pieces:
            core.receive_data(piece, START)
            reports += collect(core)
        core.receive_eof(START)
        return reports + collect(core), hello + take(core), core.state.name


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(ends)]


KINDS = st.tuples(
    st.booleans(),
    st.sampled_from(["chain", "each", "plaintext"]),
    st.sampled_from(["opened", "sealed"]),
)


def test_the_recording_is_a_whole_connection() -> None:
    for receiver in (INITIATOR, RESPONDER):
        for sealing in ("chain", "each", "plaintext"):
            reports, _, state = outcome(receiver, sealing, "opened", [recorded(receiver, sealing)])
            assert sum(isinstance(report, Event) for report in reports) == 12
            updates = sum(isinstance(report, KeysUpdated) for report in reports)
            assert updates == (0 if sealing == "plaintext" else 3)
            assert state == "ENDED"


@given(kind=KINDS, places=st.lists(st.integers(0, 10_000), max_size=30))
def test_pieces_of_a_connection(kind: tuple[bool, str, str], places: list[int]) -> None:
    receiver, sealing, _ = kind
    data = recorded(receiver, sealing)
    whole = outcome(*kind, [data])
    assert any(isinstance(report, HandshakeCompleted) for report in whole[0])
    assert outcome(*kind, cut(data, places)) == whole


@sweep("deliver", ["opened", "sealed"])
@sweep("sealing", ["chain", "each", "plaintext"])
@sweep("receiver", [INITIATOR, RESPONDER])
def test_byte_by_byte(receiver: bool, sealing: str, deliver: str) -> None:
    data = recorded(receiver, sealing)
    single = [bytes([byte]) for byte in data]
    assert outcome(receiver, sealing, deliver, single) == outcome(
        receiver, sealing, deliver, [data]
    )


@given(
    kind=KINDS,
    places=st.lists(st.integers(0, 10_000), max_size=8),
    at=st.integers(0, 10_000),
    change=st.sampled_from(["flip", "remove", "insert", "end"]),
    junk=st.binary(min_size=1, max_size=20),
)
def test_pieces_of_a_damaged_connection(
    kind: tuple[bool, str, str], places: list[int], at: int, change: str, junk: bytes
) -> None:
    """A fault is detected at the same event and for the same reason."""
    receiver, sealing, _ = kind
    data = bytearray(recorded(receiver, sealing))
    at %= len(data)
    match change:
        case "flip":
            data[at] ^= 1 << junk[0] % 8
        case "remove":
            del data[at : at + len(junk)]
        case "insert":
            data[at:at] = junk
        case _:
            del data[at:]
    whole = outcome(*kind, [bytes(data)])
    assert outcome(*kind, cut(bytes(data), places)) == whole
    assert outcome(*kind, [bytes([byte]) for byte in data]) == whole


def read(limit: int, pieces: list[bytes]) -> tuple[list[bytes], bool, int]:
    """Return the events, whether a frame was too large, and the remaining bytes."""
    reader, events = FrameReader(limit), []
    try:
        for piece in pieces:
            for event in fed(reader, piece):
                events.append(bytes(event))  # noqa: PERF401 - kept also when the next one raises
    except RemoteProtocolError:
        return events, True, 0
    return events, False, reader.size


@given(
    frames=st.lists(st.binary(max_size=40).map(frame) | st.binary(max_size=6), max_size=8),
    places=st.lists(st.integers(0, 1000), max_size=20),
    limit=st.integers(0, 45),
)
def test_pieces_of_frames(frames: list[bytes], places: list[int], limit: int) -> None:
    data = b"".join(frames)
    whole = read(limit, [data])
    assert read(limit, cut(data, places)) == whole
    assert read(limit, [bytes([byte]) for byte in data]) == whole
