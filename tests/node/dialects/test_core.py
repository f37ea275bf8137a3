"""Behaviour of all dialects: the end is reported once, queued data is sent, and deadlines apply."""

import pytest

from parley._node.dialects.core import FLUSH_SIZE, MOST_FORGOTTEN, NEVER, ByteQueue, ForeignCore
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded

BUFFER = 1_000


class Parrot(ForeignCore):
    """A dialect that repeats received data; `!` is a violation. It ends after 10 idle seconds."""

    def _receive(self, data: bytes, now: float) -> None:
        for letter in data:
            if letter == ord("!"):
                raise RemoteProtocolError(CloseCode.PROTOCOL_ERROR, "no shouting")
            self.outbox.put(bytes((letter,)))

    def _next_deadline(self) -> float:
        return self._last_byte + 10

    def _handle_deadline(self, now: float) -> None:
        if now >= self._last_byte + 10:
            self._fail(CloseCode.TIMEOUT, "idle", now)


def ends(core: ForeignCore) -> list[tuple[int, bool]]:
    return [(one.code, one.remote) for one in core.reports() if isinstance(one, ConnectionEnded)]


def reads(core: ForeignCore) -> bool:
    return core.wants_data


def shuts(core: ForeignCore) -> bool:
    return core.wants_eof


def over(core: ForeignCore) -> bool:
    return core.ended


def test_reading_pauses_while_the_other_side_does_not_read() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"a" * BUFFER, 0.0)
    assert reads(core)
    core.receive_data(b"a", 0.0)
    assert not reads(core)
    core.data_to_send(0.0)
    assert reads(core)


def test_a_violation_ends_it_after_queued_data() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"ab!cd", 5.0)
    assert ends(core) == [(CloseCode.PROTOCOL_ERROR, False)]
    core.receive_data(b"more", 5.0)  # read and discarded
    assert not shuts(core)
    assert reads(core)
    assert core.data_to_send(5.0) == b"ab"
    assert shuts(core)
    assert core.next_deadline() == 5.0 + CLOSE_LINGER
    core.handle_deadline(5.0 + CLOSE_LINGER - 0.1)
    assert not over(core)
    core.handle_deadline(5.0 + CLOSE_LINGER)
    assert over(core)
    assert core.next_deadline() == NEVER
    assert ends(core) == []


def test_sending_after_the_end_is_cut_off() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"!", 0.0)
    core.receive_data(bytes(MOST_FORGOTTEN), 0.1)
    assert not over(core)
    core.receive_data(b"x", 0.1)
    assert over(core)


def test_a_graceful_close_waits_for_the_other_side_to_hang_up() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"a", 0.0)
    core.close(1.0)
    core.close(1.5)
    assert ends(core) == [(CloseCode.NORMAL, False)]
    assert core.next_deadline() == 1.0 + CLOSE_LINGER
    assert core.data_to_send(1.0) == b"a"
    core.receive_eof(1.1)
    assert core.ended
    assert ends(core) == []


def test_the_end_of_the_transport_discards_queued_data() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"abc", 0.0)
    core.receive_eof(0.0)
    assert core.ended
    assert core.queued_bytes == 0
    assert ends(core) == [(CloseCode.CONNECTION_LOST, True)]


def test_an_abort_ends_it_at_once() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"abc", 0.0)
    core.abort(0.0, CloseCode.INTERNAL_ERROR, "a bug")
    assert core.ended
    assert core.queued_bytes == 0
    assert ends(core) == [(CloseCode.INTERNAL_ERROR, False)]


def test_a_deadline_of_the_dialect() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.receive_data(b"a", 3.0)
    assert core.next_deadline() == 13.0
    core.data_to_send(4.0)
    assert core.next_deadline() == 14.0  # bytes in either direction count
    core.handle_deadline(14.0)
    assert ends(core) == [(CloseCode.TIMEOUT, False)]


def test_much_is_written_in_pieces() -> None:
    core = Parrot(0.0, BUFFER, MemoryBudget(1 << 30))
    core.outbox.put(bytes(FLUSH_SIZE))
    core.outbox.put(b"rest")
    assert len(core.data_to_send(0.0)) == FLUSH_SIZE
    assert core.data_to_send(0.0) == b"rest"


@pytest.mark.parametrize("sizes", [[5], [300], [100, 100, 100], [300, 1], [1, 300], [99, 1, 99]])
def test_it_gives_whole_strings_up_to_the_limit_or_all(sizes: list[int]) -> None:
    outgoing = ByteQueue(MemoryBudget(1 << 30))
    put = [bytes([n]) * size for n, size in enumerate(sizes)]
    for data in put:
        outgoing.put(data)
    taken = b""
    while outgoing.count:
        data = outgoing.take(100)
        # A driver takes a shorter result to mean that the queue is empty.
        assert len(data) >= 100 or not outgoing.count
        taken += data
        assert outgoing.size == sum(sizes) - len(taken)
    assert taken == b"".join(put)
