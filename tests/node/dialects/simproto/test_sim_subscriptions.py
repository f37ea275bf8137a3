"""Local subscriptions: requested, accepted, left, read too slowly; and queued notes."""

import pytest

from parley._node.dialects.core import NEVER
from parley._node.dialects.simproto.codec import NOTIFY, REQUEST, RESPONSE, serialise_message
from parley._node.dialects.simproto.sim import NoteQueue
from parley._node.protocol.codes import ResultCode
from tests.node.dialects.simproto.sides import Notes, Side, code_of, exchange, request


def test_a_subscription_of_ours() -> None:
    one, other = Side(), Side()
    notes = Notes(one).subscribe(b"since")
    exchange(one, other)
    assert notes.answer == (0, b"since")
    other.publish("news", b"a", b"b")
    exchange(one, other)
    assert notes.read() == [b"a", b"b"]
    double = Notes(one).subscribe()
    assert Notes(one, "nobody").subscribe().answer is None
    exchange(one, other)
    assert double.answer == (2, None)
    assert one.sim.subscriptions.reads("news", notes)
    left = notes.leave()
    assert left is not None
    again = Notes(one).subscribe()
    other.publish("news", b"on its way")
    exchange(one, other)
    assert (left.code, left.done) == (0, True)
    assert again.answer == (0, None)
    other.publish("news", b"c")
    exchange(one, other)
    assert again.read() == [b"c"]
    assert notes.read() == []
    assert one.sim.subscriptions.dropped == 1
    assert one.ended is other.ended is None


def test_rejected_with_data() -> None:
    one, other = Side(), Side()
    secret, odd = Notes(one, "secret").subscribe(), Notes(one, "odd").subscribe()
    exchange(one, other)
    assert secret.answer == (ResultCode.REJECTED, b"no")
    assert odd.answer == (ResultCode.REJECTED, None)
    assert not one.sim.subscriptions.reads("secret", secret)


def test_notes_may_come_before_the_acceptance() -> None:
    side = Side()
    notes = Notes(side).subscribe()
    side.said()
    assert code_of(side.receive(request(NOTIFY, "news", b"early"))) == 0
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert notes.read() == [b"early"]


def test_a_late_acceptance_is_unsubscribed() -> None:
    side = Side()
    notes = Notes(side).subscribe()
    assert notes.call is not None
    notes.queue.close()
    side.sim.outgoing.cancel(notes.call)
    side.said()
    assert code_of(side.receive(request(NOTIFY, "news", b"early"))) == 2
    unsubscribe = serialise_message(REQUEST, 2, b"\2\4\0news")
    assert side.receive(serialise_message(RESPONSE, 1, b"\0")) == unsubscribe
    assert code_of(side.receive(request(NOTIFY, "news", b"late"))) == 2
    side.receive(serialise_message(RESPONSE, 2, b"\0"))
    assert side.ended is None


def test_unread_notes_are_acknowledged_late_and_then_end_it() -> None:
    side = Side()
    notes = Notes(side, window=100).subscribe()
    side.said()
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    said = [side.receive(request(NOTIFY, "news", b"x" * 16, dialog=number)) for number in range(2)]
    assert [bool(text) for text in said] == [True, False]
    assert side.sim.next_deadline() == 10.0
    assert code_of(side.at(10.0)) == 0
    assert side.sim.next_deadline() == float("inf")
    assert side.receive(request(NOTIFY, "news", b"x" * 16, dialog=2)) == b""
    assert code_of(side.receive(request(NOTIFY, "news", b"x" * 16, dialog=3))) == 2
    assert notes.end == "cut off"
    assert len(notes.queue) == 3  # received notes stay readable
    assert code_of(side.receive(request(NOTIFY, "news", b"x", dialog=4))) == 2


NOTE = b"x" * 36  # 100 bytes of cost


class Wait:
    """A queue with a window of three notes, and its acknowledgements."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.told = 0
        self.queue = NoteQueue(300, 10.0, self.acknowledged.append, self._tell)

    def _tell(self) -> None:
        self.told += 1


def test_notes_within_the_window_are_acknowledged_as_they_come() -> None:
    wait = Wait()
    for dialog in range(5):
        assert wait.queue.put(NOTE, dialog, 0.0)
    assert wait.acknowledged == [0, 1, 2]
    assert wait.told == len(wait.queue) == 5
    assert wait.queue.deadline == 10.0


def test_reading_makes_room() -> None:
    wait = Wait()
    for dialog in range(6):
        wait.queue.put(bytes([dialog]) + NOTE[1:], dialog, 0.0)
    for read in range(6):
        assert wait.queue.take()[0] == read
        assert wait.acknowledged == list(range(min(6, 4 + read)))
    assert wait.queue.deadline == NEVER
    with pytest.raises(IndexError):
        wait.queue.take()


def test_acknowledgements_are_not_delayed_forever() -> None:
    wait = Wait()
    for dialog in range(5):
        wait.queue.put(NOTE, dialog, float(dialog))
    wait.queue.handle_deadline(12.9)
    assert wait.acknowledged == [0, 1, 2]
    wait.queue.handle_deadline(13.0)
    assert wait.acknowledged == [0, 1, 2, 3]
    assert wait.queue.deadline == 14.0
    wait.queue.take()
    assert wait.acknowledged == [0, 1, 2, 3]  # four are still queued


def test_twice_the_window_is_all() -> None:
    wait = Wait()
    assert [wait.queue.put(NOTE, dialog, 0.0) for dialog in range(7)] == [True] * 6 + [False]
    assert len(wait.queue) == 6


def test_a_note_longer_than_the_window_comes_alone() -> None:
    wait = Wait()
    assert wait.queue.put(b"x" * 1_000, 1, 0.0)
    assert wait.acknowledged == [1]
    assert not wait.queue.put(NOTE, 2, 0.0)
    wait.queue.take()
    wait.queue.put(NOTE, 3, 0.0)
    assert wait.queue.put(b"x" * 400, 4, 0.0)
    assert wait.acknowledged == [1, 3]
    wait.queue.take()
    assert wait.acknowledged == [1, 3, 4]  # the next one to be read


def test_leaving_acknowledges_received_notes() -> None:
    wait = Wait()
    for dialog in range(5):
        wait.queue.put(NOTE, dialog, 0.0)
    wait.queue.close()
    assert wait.acknowledged == [0, 1, 2, 3, 4]
    assert len(wait.queue) == 0
    assert wait.queue.deadline == NEVER
