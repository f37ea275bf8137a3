"""Topics of theirs that we read: asked for, accepted, left, and not read in time."""

from node.dialects.simproto.codec import NOTIFY, REQUEST, RESPONSE, serialise_message
from node.protocol.codes import ResultCode
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


def test_accepted_when_nobody_waits_any_more() -> None:
    side = Side()
    notes = Notes(side).subscribe()
    assert notes.call is not None
    notes.queue.close()
    side.sim.outgoing.give_up(notes.call)
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
