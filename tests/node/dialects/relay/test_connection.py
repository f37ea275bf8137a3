"""One client from the relay's view: its UUID, its errors, and when it is dropped."""

import pytest

from parley._node.dialects.relay.codec import BROADCAST, NOBODY, SERVER, RelayCode, decode_error
from parley._node.protocol.codes import CloseCode
from tests.node.dialects.relay.hall import (
    A,
    B,
    C,
    Hall,
    end_of,
    faults,
    message,
    messages,
    written,
)


class Driver:
    """The driver of a connection; `takes` is whether its transport accepts bytes."""

    def __init__(self, hall: Hall, uuid: bytes, takes: bool) -> None:
        self.core = hall.at[uuid]
        self.core.driver = self
        self.core.outbox.waker.wake = self._woken
        self.takes = takes
        self.calls: list[str] = []
        self.taken = b""

    def flush(self) -> None:
        self.calls.append("flush")
        if self.takes:
            self.taken += written(self.core)

    def step(self) -> None:
        self.calls.append("step")

    def _woken(self) -> None:
        self.calls.append("wake")


# The UUID.


@pytest.mark.parametrize(
    ("uuid", "code", "to"),
    [
        (BROADCAST, RelayCode.INVALID_UUID, NOBODY),
        (SERVER, RelayCode.INVALID_UUID, NOBODY),
        (A, RelayCode.ALREADY_CONNECTED, A),
    ],
)
def test_a_uuid_that_is_refused(uuid: bytes, code: RelayCode, to: bytes) -> None:
    hall = Hall(A, B)
    hall.at[C] = core = hall.enter(uuid + message(B, uuid, b"never passed on"))
    assert end_of(core) == (CloseCode.PROTOCOL_ERROR, False)
    recipient, sender, payload = hall.read(C)[0]
    assert (recipient, sender, decode_error(payload).code) == (to, SERVER, code)
    assert core.wants_eof
    assert hall.read(B) == []
    # The earlier client stays.
    hall.send(B, message(A, B, b"still there?"))
    assert hall.read(A) == [(A, B, b"still there?")]


def test_the_uuid_has_to_come_in_time() -> None:
    hall = Hall()
    core = hall.enter(A[:15])
    assert core.next_deadline() == hall.now + hall.limits.uuid_timeout
    core.handle_deadline(hall.now + hall.limits.uuid_timeout - 0.01)
    assert not core.closing
    core.handle_deadline(hall.now + hall.limits.uuid_timeout)
    assert end_of(core) == (CloseCode.TIMEOUT, False)
    told = written(core)
    assert messages(told)[0][:2] == (NOBODY, SERVER)
    assert faults(told) == [RelayCode.INVALID_UUID]
    core.receive_data(A[15:], hall.now)
    assert hall.router.members == {}


def test_an_idle_client_is_closed() -> None:
    hall = Hall(A, B)
    idle = hall.limits.idle_timeout
    a, b = hall.at[A], hall.at[B]
    hall.now += 10
    hall.send(A, message(B, A))
    hall.written(B)
    assert a.next_deadline() == b.next_deadline() == hall.now + idle  # bytes in either direction
    a.handle_deadline(hall.now + idle - 0.01)
    assert not a.closing
    a.handle_deadline(hall.now + idle)
    assert end_of(a) == (CloseCode.TIMEOUT, False)
    assert hall.router.members == {B: b}


# Errors.


def test_an_internal_error_is_reported_as_one() -> None:
    hall = Hall(A)
    core = hall.at[A]
    core.deliver([b"queued"], 6, hall.now)
    core.abort(hall.now, CloseCode.INTERNAL_ERROR, "a bug")
    assert end_of(core) == (CloseCode.INTERNAL_ERROR, False)
    assert faults(hall.written(A)) == [RelayCode.INTERNAL_ERROR]
    assert core.wants_eof
    core.abort(hall.now, CloseCode.INTERNAL_ERROR, "again")
    assert core.ended


def test_a_closed_client_gets_only_queued_data() -> None:
    hall = Hall(A, B)
    hall.send(A, message(B, A, b"last"))
    hall.at[B].close(hall.now)
    hall.send(A, message(B, A, b"too late"))
    assert hall.read(B) == [(B, A, b"last")]
    assert faults(hall.written(A)) == [RelayCode.NOT_CONNECTED]


def test_a_closing_client_gets_no_more_messages() -> None:
    hall = Hall(A)
    hall.at[A].close(hall.now)
    hall.at[A].deliver([message(A, B)], 36, hall.now)
    assert hall.written(A) == b""


def test_a_member_is_told_of_a_batch_once() -> None:
    hall = Hall(A, B, C)
    drivers = [Driver(hall, uuid, takes=False) for uuid in (A, B, C)]
    batch = [message(to, A, bytes(9)) for to in (B, C, B, BROADCAST, C, A, B)]
    hall.send(A, b"".join(batch))
    assert [driver.calls for driver in drivers] == [["wake"]] * 3
    assert [len(hall.read(uuid)) for uuid in (A, B, C)] == [1, 4, 3]


# Clients that do not read.


def test_a_client_that_does_not_read_is_dropped_and_counted() -> None:
    hall = Hall(A, B, C)
    slow, other = Driver(hall, B, takes=False), Driver(hall, C, takes=True)
    burst = b"".join(message(to, A, bytes(1_000)) for to in (B, C) for _ in range(16))
    sent = 0
    while not hall.at[B].closing:
        hall.send(A, burst)
        sent += 16
        assert hall.at[B].queued_bytes <= hall.limits.write_buffer
    assert sent == 64  # of 1,036 bytes: the first that were more than 65,536
    assert slow.calls[-2:] == ["flush", "step"]
    assert end_of(hall.at[B]) == (CloseCode.OVERLOADED, False)
    assert hall.at[B].ended
    assert hall.router.dropped == 1
    assert len(messages(other.taken + written(other.core))) == 64
    assert faults(hall.written(A)) == []
    hall.send(A, message(B, A))
    assert faults(hall.written(A)) == [RelayCode.NOT_CONNECTED]


def test_a_reading_client_can_get_more_than_the_limit_in_a_turn() -> None:
    hall = Hall(A, B)
    driver = Driver(hall, B, takes=True)
    for _ in range(10):
        hall.send(A, message(B, A, bytes(4_000)) * 16)
    assert not hall.at[B].closing
    assert len(messages(driver.taken + written(driver.core))) == 160
    assert hall.router.dropped == 0


def test_a_client_that_floods_itself_is_dropped() -> None:
    hall = Hall(A, B)
    hall.send(A, message(A, A, bytes(1_000)) * 60)
    hall.send(A, message(A, A, bytes(1_000)) * 10 + message(B, A, b"sent before"))
    assert end_of(hall.at[A]) == (CloseCode.OVERLOADED, False)
    assert hall.read(B) == [(B, A, b"sent before")]
    assert hall.router.dropped == 1


@pytest.mark.parametrize(
    "flood",
    [bytes(4), message(bytes([9]) * 16, A), (31).to_bytes(4) + bytes(31)],
    ids=["no length", "nobody there", "too short"],
)
def test_a_client_that_does_not_read_errors_is_dropped(flood: bytes) -> None:
    hall = Hall(A)
    data = flood * (8_192 // len(flood))
    for _ in range(2_000):
        hall.send(A, data)
        if hall.at[A].ended:
            break
        assert hall.at[A].queued_bytes <= 4 * hall.limits.write_buffer
    assert end_of(hall.at[A]) == (CloseCode.OVERLOADED, False)
    assert hall.router.dropped == 1
