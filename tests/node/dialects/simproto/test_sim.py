"""Who is asked, told and answered: topics both ways, with exactly the document's codes."""

import pytest

from node.dialects.limits import SimProtoLimits
from node.dialects.simproto.asking import OutgoingRequest
from node.dialects.simproto.heads import HEAD_SIZE, REQUEST, RESPONSE, serialise_message
from node.dialects.simproto.note_queue import NoteQueue
from node.dialects.simproto.packets import NOTIFY, SUBSCRIBE, UNSUBSCRIBE
from node.messaging.fanout import Slow
from node.protocol.codes import CloseCode, ResultCode
from tests.node.dialects.simproto.sides import LIMITS, Side, exchange, request


class Notes:
    """A reader, of two notes' window."""

    def __init__(self, side: Side, topic: str = "news", window: int = 200) -> None:
        self.side = side
        self.topic = topic
        self.queue = NoteQueue(window, 10.0, self._acknowledge, lambda: None)
        self.call: OutgoingRequest | None = None
        self.end: tuple[int, str] | str = ""

    def subscribe(self, data: bytes = b"") -> "Notes":
        self.call = self.side.sim.asking.subscribe(self.topic, data, 0.0, None, lambda: None)
        self.side.sim.readings.expect(self.topic, self, self.call)
        return self

    @property
    def answer(self) -> tuple[int, object] | None:
        assert self.call is not None
        return (self.call.code, self.call.data) if self.call.done else None

    def leave(self) -> OutgoingRequest | None:
        self.queue.close()
        return self.side.sim.readings.leave(self.topic, self, self.side.now)

    def read(self) -> list[bytes]:
        return [self.queue.take() for _ in range(len(self.queue))]

    def cut_off(self) -> None:
        self.end = "cut off"

    def lost(self, code: int, text: str) -> None:
        self.end = code, text

    def _acknowledge(self, dialog: int) -> None:
        self.side.sim.readings.acknowledge(dialog, self.side.now)


def code_of(said: bytes) -> int:
    assert said[0] == RESPONSE
    return said[HEAD_SIZE]


# Their subscriptions, from the wire.


def test_every_code_of_a_subscription() -> None:
    side = Side()
    assert code_of(side.receive(request(UNSUBSCRIBE, "news"))) == 2
    assert code_of(side.receive(request(UNSUBSCRIBE, "nobody"))) == 1
    assert code_of(side.receive(request(SUBSCRIBE, "nobody"))) == 1
    accepted = side.receive(request(SUBSCRIBE, "news", b"since"))
    assert accepted == serialise_message(RESPONSE, 1, b"\0since")
    assert side.receive(request(SUBSCRIBE, "news")) == serialise_message(RESPONSE, 1, b"\2")
    assert side.receive(request(SUBSCRIBE, "secret")) == serialise_message(RESPONSE, 1, b"\3no")
    assert side.receive(request(SUBSCRIBE, "odd")) == serialise_message(RESPONSE, 1, b"\3")
    assert code_of(side.receive(request(UNSUBSCRIBE, "news"))) == 0
    assert code_of(side.receive(request(UNSUBSCRIBE, "news"))) == 2
    assert code_of(side.receive(request(NOTIFY, "news", b"x"))) == 2
    assert side.ended is None


def test_notes_follow_the_acceptance_and_end_with_it() -> None:
    side = Side()
    side.publish("news", b"before")
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", b"one", b"two")
    note = b"\x03\x04\x00news"
    assert side.said() == b"".join(
        serialise_message(REQUEST, dialog, note + text)
        for dialog, text in [(1, b"one"), (2, b"two")]
    )
    side.receive(request(UNSUBSCRIBE, "news"))
    side.publish("news", b"after")
    assert side.said() == b""


@pytest.mark.parametrize("code", [1, 2, 3])
def test_a_note_that_is_not_taken_ends_the_subscription(code: int) -> None:
    side = Side()
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", b"one")
    side.said()
    side.receive(serialise_message(RESPONSE, 1, bytes([code])))
    assert not side.sim.is_subscribed("news")
    side.publish("news", b"two")
    assert side.said() == b""
    assert code_of(side.receive(request(UNSUBSCRIBE, "news"))) == 2


# Ours.


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
    assert one.sim.readings.reads("news", notes)
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
    assert one.sim.readings.dropped == 1
    assert one.ended is other.ended is None


def test_rejected_with_data() -> None:
    one, other = Side(), Side()
    secret, odd = Notes(one, "secret").subscribe(), Notes(one, "odd").subscribe()
    exchange(one, other)
    assert secret.answer == (ResultCode.REJECTED, b"no")
    assert odd.answer == (ResultCode.REJECTED, None)
    assert not one.sim.readings.reads("secret", secret)


def test_notes_may_come_before_the_acceptance() -> None:
    side = Side()
    notes = Notes(side).subscribe()
    side.said()
    assert code_of(side.receive(request(NOTIFY, "news", b"early"))) == 0
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert notes.read() == [b"early"]


def test_accepted_when_nobody_waits_any_more() -> None:
    side = Side()
    notes = Notes(side).subscribe()
    assert notes.call is not None
    notes.queue.close()
    side.sim.asking.give_up(notes.call)
    side.said()
    assert code_of(side.receive(request(NOTIFY, "news", b"early"))) == 2
    unsubscribe = serialise_message(REQUEST, 2, b"\2\4\0news")
    assert side.receive(serialise_message(RESPONSE, 1, b"\0")) == unsubscribe
    assert code_of(side.receive(request(NOTIFY, "news", b"late"))) == 2
    side.receive(serialise_message(RESPONSE, 2, b"\0"))
    assert side.ended is None


def test_what_is_not_read_is_acknowledged_late_and_then_cut_off() -> None:
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
    assert len(notes.queue) == 3  # what came stays readable
    assert code_of(side.receive(request(NOTIFY, "news", b"x", dialog=4))) == 2


def test_the_end_of_the_connection_is_the_end_of_all() -> None:
    one, other = Side(), Side()
    notes = Notes(one).subscribe()
    exchange(one, other)
    pending = Notes(one, "odd").subscribe()
    over: list[object] = []
    feed = next(iter(other.fanouts["news"].feeds))
    feed.on_over = lambda: over.append(feed)
    for side in (one, other):
        side.core.receive_eof(1.0)
        side.said()
    assert notes.end == (CloseCode.CONNECTION_LOST, "")
    assert pending.answer == (-1, None)
    assert not other.fanouts["news"].feeds
    assert over == [feed]


# Many notes.


def test_notes_leave_dialogs_for_calls_and_feeds_take_turns() -> None:
    limits = SimProtoLimits(dialogs=8)
    side = Side(limits)
    for number, topic in enumerate(("news", "odd")):
        side.receive(request(SUBSCRIBE, topic, dialog=number))
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", *[b"%d" % number for number in range(20)])
    assert side.core.free_dialogs == 2
    assert side.said().count(b"news") == 6
    side.sim.asking.call("echo", b"", 0.0, None, lambda: None)
    side.said()
    sent = 6
    for dialog in range(1, 7):
        sent += side.receive(serialise_message(RESPONSE, dialog, b"\0")).count(b"news")
    assert sent == 12
    assert side.core.free_dialogs == 1


def test_on_the_way_is_bounded_in_bytes_too() -> None:
    one, other = Side(LIMITS), Side(LIMITS)
    notes = Notes(one, window=1 << 20).subscribe()
    exchange(one, other)
    other.publish("news", *[b"x" * 30_000 for _ in range(20)])
    assert other.said().count(b"news") == 2
    other.receive(serialise_message(RESPONSE, 1, b"\0") + serialise_message(RESPONSE, 2, b"\0"))
    one, other = Side(LIMITS), Side(LIMITS)
    notes = Notes(one, window=1 << 16).subscribe()
    exchange(one, other)
    other.publish("news", *[b"x" * 500_000 for _ in range(2)])
    assert other.said().count(b"news") == 1  # one alone may be longer
    assert notes.read() == []


def test_a_finished_topic_is_over_once_all_is_acknowledged() -> None:
    side = Side()
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", b"one", b"two")
    feed = next(iter(side.fanouts["news"].feeds))
    over: list[object] = []
    feed.on_over = lambda: over.append(feed)
    feed.finish()
    assert feed.left != (0, 0)
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert not over
    side.receive(serialise_message(RESPONSE, 2, b"\0"))
    assert over == [feed]
    assert feed.left == (0, 0)
    assert not side.sim.is_subscribed("news")


@pytest.mark.parametrize("slow", ["drop-oldest", "unsubscribe"])
def test_who_acknowledges_nothing_loses_notes_or_the_subscription(slow: Slow) -> None:
    side = Side()
    fanout = side.fanouts["news"]
    fanout.limit, fanout.slow = 10_000, slow
    side.receive(request(SUBSCRIBE, "news"))
    feed = next(iter(fanout.feeds))
    for _ in range(2_000):
        side.publish("news", b"x" * 200)
    assert feed.cost <= 10_000
    assert feed.open is (slow == "drop-oldest")
    assert side.publisher.cut == ([] if feed.open else [feed])
    assert fanout.dropped > (500 if feed.open else 30)
    assert side.ended is None


def test_notes_without_a_form_or_too_long_are_lost() -> None:
    side = Side(SimProtoLimits(longest_frame=64))
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", 5, b"x" * 60, b"fits")
    assert side.said() == serialise_message(REQUEST, 1, b"\3\4\0newsfits")
    assert side.fanouts["news"].dropped == 2
