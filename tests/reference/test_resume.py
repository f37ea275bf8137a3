"""Two reference peers over cuts (section 17)."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import perf_counter, sleep

import pytest

from tests.reference import acts, resuming
from tests.reference.channel import Channel, ConnectionLost
from tests.reference.handshake import Config
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.resume import Refused, UnknownSession
from tests.reference.resuming import Rejected
from tests.reference.test_self import config
from tests.reference.wire import CELLS, CODES, TYPES, Violation

TIMEOUT = 3.0


class Line:
    """Two peers and their transports. The responder serves in a thread, and takes what `dial`
    makes for a Resume once the transport before it has ended."""

    def __init__(self, ours: Config, theirs: Config) -> None:
        left, right = socket.socketpair()
        self.one = ReferencePeer(left, "initiator", ours, timeout=TIMEOUT)
        self.two = ReferencePeer(right, "responder", theirs, timeout=TIMEOUT)
        self.sockets = [left, right]
        self.refused: list[Exception] = []
        self.closed: list[int] = []
        self._next: list[socket.socket] = []
        self._dialled = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()
        self.one.handshake()

    def dial(self) -> socket.socket:
        """Another transport to the responder."""
        left, right = socket.socketpair()
        for sock in (left, right):
            sock.settimeout(TIMEOUT)
        self.sockets += [left, right]
        self._next.append(right)
        self._dialled.release()
        return left

    def resume(self) -> None:
        resuming.resume(self.one, self.dial())

    def wait_for_refusals(self, count: int) -> None:
        ends = perf_counter() + TIMEOUT
        while len(self.refused) < count and perf_counter() < ends:
            sleep(0.01)

    def end(self) -> None:
        for sock in self.sockets:
            sock.close()
        self._dialled.release()
        self.thread.join(2 * TIMEOUT)
        assert not self.thread.is_alive()

    def _serve(self) -> None:
        self.two.handshake()
        while True:
            try:
                self.closed.append(acts.serve(self.two).code)
                return
            except (ConnectionLost, Violation, TimeoutError):
                pass
            while True:
                self._dialled.acquire()
                if not self._next:
                    return
                try:
                    resuming.accept(self.two, self._next.pop(0))
                    break
                except (UnknownSession, Violation) as error:
                    self.refused.append(error)
                except ConnectionLost:
                    pass


@contextmanager
def line(ours: int = 30_000, theirs: int = 30_000, key: bytes | None = None) -> Iterator[Line]:
    parts = Line(
        config("initiator", resume_ms=ours, network_key=key),
        config("responder", resume_ms=theirs, network_key=key),
    )
    with ExitStack() as stack:
        stack.callback(parts.end)
        yield parts


def echo(peer: ReferencePeer, text: str, async_id: int) -> None:
    assert acts.call(peer, "parley.echo", text, async_id=async_id)[CELLS["data"]] == text


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_calls_go_on_over_cuts(key: bytes | None) -> None:
    with line(key=key) as parts:
        for number in range(1, 6):
            echo(parts.one, f"call {number}", number)
            resuming.part(parts.one)
            # Sent while there is no transport: it is kept, and goes with the next one.
            with suppress(ConnectionLost, OSError):
                parts.one.send("Call", 1, 100 + number, topic="parley.echo", data=number)
            parts.resume()
            assert acts.result(parts.one, 100 + number)[CELLS["data"]] == number
        acts.rekey(parts.one)
        parts.resume()
        echo(parts.one, "after a rekey", 9)
        ones, twos = parts.one.resumption, parts.two.resumption
        assert ones is not None
        assert twos is not None
        assert ones.count == twos.count == 6
        assert ones.key == twos.key
        parts.one.send("Close", 0, code=CODES["normal"])
        parts.thread.join(TIMEOUT)
        assert parts.closed == [CODES["normal"]]


def test_an_answer_that_was_cut_comes_again() -> None:
    with line() as parts:
        parts.one.send("Call", 1, 1, topic="parley.echo", data=bytes(50_000))
        raw = parts.one.channel.sock
        raw.recv(1_000)  # some bytes of frames that are lost with it
        parts.resume()
        assert acts.result(parts.one, 1)[CELLS["data"]] == bytes(50_000)


def test_what_is_told_is_kept_no_more() -> None:
    with line() as parts:
        for number in range(8):
            echo(parts.one, "x" * 65_000, number + 1)
        kept = parts.one.resumption
        assert kept is not None
        assert kept.kept.sent > 8 * 65_000
        assert kept.kept.sent - kept.kept.told < 262_144 + 70_000
        told = [cells[CELLS["received"]] for cells in acts.received(parts.one, "Received")]
        assert told[0] == 0
        assert told == sorted(told)
        assert len(told) >= 2


def test_a_lost_resumed_is_made_good() -> None:
    with line() as parts:
        echo(parts.one, "first", 1)
        resumption = parts.one.resumption
        assert resumption is not None
        resuming.part(parts.one)
        channel = Channel(parts.dial(), TIMEOUT)
        channel.send_frame(resumption.ask())
        channel.receive_frame()  # Resumed, which the initiator does not get to see
        channel.close()
        parts.resume()
        echo(parts.one, "second", 2)
        assert (resumption.count, resumption.attempt) == (1, 2)
        assert parts.two.resumption is not None
        assert parts.two.resumption.count == 1


def test_replayed_and_forged_resumes_are_rejected() -> None:
    with line() as parts:
        resumption = parts.one.resumption
        assert resumption is not None
        resuming.part(parts.one)
        channel = Channel(parts.dial(), TIMEOUT)
        event = resumption.ask()
        wrong = event[:-1] + bytes([event[-1] ^ 1])
        channel.send_frame(wrong)
        assert channel.receive_frame()[8:] == b"\xa2\x10\x0e\x11ounknown-session"
        parts.resume()
        resuming.part(parts.one)
        for old in (event, wrong):
            channel = Channel(parts.dial(), TIMEOUT)
            channel.send_frame(old)
            assert channel.receive_frame()[6:8] == bytes(TYPES["Reject"])
        parts.resume()
        echo(parts.one, "still here", 1)
        assert [str(error) for error in parts.refused] == ["mac", "attempt", "mac"]


def test_a_position_that_cannot_be_ends_the_session() -> None:
    with line() as parts:
        resumption = parts.one.resumption
        assert resumption is not None
        resuming.part(parts.one)
        resumption.received += 1_000_000
        with pytest.raises(Rejected) as rejected:
            parts.resume()
        assert rejected.value.code == CODES["unknown-session"]
        parts.wait_for_refusals(1)
        assert isinstance(parts.refused[0], UnknownSession)
        assert parts.refused[0].ends


def test_a_forged_resumed_is_refused() -> None:
    with line() as parts:
        left, right = socket.socketpair()
        parts.sockets += [left, right]
        assert parts.one.resumption is not None
        other = Channel(right, TIMEOUT)
        answer = parts.one.resumption.ask()  # any bytes of that shape
        other.send_frame(answer[:7] + b"\x0e" + answer[8:])
        with pytest.raises(Refused):
            resuming.resume(parts.one, left)
        parts.resume()
        echo(parts.one, "the right one", 1)


def test_whoever_breaks_the_first_event_gains_a_further_cut() -> None:
    with line() as parts:
        echo(parts.one, "before", 1)
        parts.resume()
        assert parts.one.resumption is not None
        assert parts.two.resumption is not None
        resuming.part(parts.one)
        channel = Channel(parts.dial(), TIMEOUT)
        channel.send_frame(parts.one.resumption.ask())
        channel.receive_frame()
        channel.send_frame(bytes(100))
        channel.drain(0.2)
        parts.resume()
        echo(parts.one, "after", 2)


@pytest.mark.parametrize(("ours", "theirs"), [(0, 30_000), (30_000, 0)])
def test_without_an_agreement_nothing_is_told_or_resumed(ours: int, theirs: int) -> None:
    with line(ours, theirs) as parts:
        assert parts.one.resumption is None
        assert parts.two.resumption is None
        parts.one.send("Received", 0, received=0)
        assert acts.closed_with(parts.one) == "protocol-error"


@pytest.mark.parametrize("position", [1, 1_000_000])
def test_a_received_that_cannot_be_is_a_violation(position: int) -> None:
    with line() as parts:
        parts.one.tell()
        if position == 1:
            echo(parts.one, "to have something to tell", 1)
            parts.one.tell()
            position = 0
        parts.one.send("Received", 0, received=position)
        with suppress(Closed):
            assert acts.closed_with(parts.one) == "protocol-error"


def test_too_many_small_tellings_are_overloaded() -> None:
    with line() as parts:
        with suppress(ConnectionLost):
            for _ in range(80):
                parts.one.tell()
        assert acts.closed_with(parts.one) == "overloaded"
