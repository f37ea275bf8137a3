from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.client import MESSAGE_COST, RelayClientConnection
from parley._node.dialects.relay.codec import (
    BROADCAST,
    SERVER,
    RelayCode,
    RelayFault,
    RelayMessage,
    encode_error,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import ConnectionClosedError, PayloadTooLargeError
from parley._node.protocol.reports import ConnectionEnded
from tests.node.dialects.relay.hall import A, B, C, end_of, message, messages, written

LIMITS = DialectLimits(longest_frame=4_096, client_memory=2_048)


def client() -> RelayClientConnection:
    core = RelayClientConnection(A, LIMITS, 0.0)
    assert written(core) == A
    return core


def received(core: RelayClientConnection, data: bytes, piece: int = 1 << 20) -> list[object]:
    for at in range(0, len(data), piece):
        core.receive_data(data[at : at + piece], 1.0)
    return core.reports()


def test_a_uuid_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="invalid UUID of 15 bytes: expected 16"):
        RelayClientConnection(A[:15], LIMITS, 0.0)


def test_a_payload_has_its_limit() -> None:
    core = client()
    core.send(B, bytes(4_096 - 32))
    with pytest.raises(PayloadTooLargeError, match="the limit is 4,064"):
        core.send(B, bytes(4_096 - 31))
    assert len(messages(written(core))) == 1


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_messages_and_errors_are_reported_in_order(piece: int) -> None:
    core = client()
    data = (
        message(A, B, b"direct")
        + encode_error(A, RelayCode.NOT_CONNECTED, "who?")
        + message(BROADCAST, C, b"all")
        + message(A, B)
    )
    assert received(core, data, piece) == [
        RelayMessage(B, b"direct", is_broadcast=False),
        RelayFault(RelayCode.NOT_CONNECTED, "who?"),
        RelayMessage(C, b"all", is_broadcast=True),
        RelayMessage(B, b"", is_broadcast=False),
    ]
    assert core.fault is None


def test_misdirected_messages_are_dropped_and_counted() -> None:
    core = client()
    assert received(core, message(C, B, b"astray")) == []
    assert core.misdirected == 1


def test_the_cause_of_an_end_is_kept() -> None:
    core = client()
    reports = received(core, encode_error(A, RelayCode.ALREADY_CONNECTED, "taken"))
    assert reports == [RelayFault(2, "taken")]
    core.receive_eof(1.0)
    assert end_of(core) == (CloseCode.CONNECTION_LOST, True)
    assert core.fault == RelayFault(2, "taken")
    with pytest.raises(ConnectionClosedError):
        core.send(B, b"")


@pytest.mark.parametrize("piece", [1, 1 << 20])
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (pack(">I", 31), CloseCode.PROTOCOL_ERROR),
        (pack(">I", 4_097), CloseCode.FRAME_TOO_LARGE),
        (pack(">I", 2**32 - 1), CloseCode.FRAME_TOO_LARGE),
        (message(A, B, bytes(4_065)), CloseCode.FRAME_TOO_LARGE),
        (message(A, SERVER, b"\0\0\5"), CloseCode.PROTOCOL_ERROR),
    ],
    ids=["too short", "too long", "longest", "too long, with its head", "an error without a code"],
)
def test_a_relay_that_breaks_the_rules_is_left(bad: bytes, code: CloseCode, piece: int) -> None:
    core = client()
    *before, ended = received(core, message(A, B, b"before") + bad, piece)
    assert before == [RelayMessage(B, b"before", is_broadcast=False)]
    assert isinstance(ended, ConnectionEnded)
    assert (ended.code, ended.remote) == (code, False)
    assert core.wants_eof


def test_reading_pauses_while_much_is_unread() -> None:
    core = client()
    data = message(A, B, bytes(500))
    got = received(core, data * 2)
    waits = [core.wants_data]
    got += received(core, data)
    assert LIMITS.client_memory < 3 * (500 + MESSAGE_COST)
    waits.append(core.wants_data)
    for one in got:
        assert isinstance(one, RelayMessage)
        core.consumed(one)
    assert [*waits, core.wants_data] == [True, False, True]


def test_an_idle_client_leaves() -> None:
    core = client()
    received(core, message(A, B))
    core.handle_deadline(LIMITS.idle_timeout + 0.9)
    assert not core.closing
    assert core.next_deadline() == LIMITS.idle_timeout + 1
    core.handle_deadline(LIMITS.idle_timeout + 1)
    assert end_of(core) == (CloseCode.TIMEOUT, False)


@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_bytes_end_in_reports(data: bytes, cut: int) -> None:
    whole, halves = client(), client()
    expected = received(whole, data)
    got = received(halves, data[:cut])
    got += received(halves, data[cut:])
    assert got == expected
