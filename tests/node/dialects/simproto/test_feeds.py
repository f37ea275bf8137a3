"""Notes of local topics in transit: limited, in order, and dropped by the topic's policy."""

import pytest

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import (
    REQUEST,
    RESPONSE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    serialise_message,
)
from parley._node.messaging.fanout import Slow
from tests.node.dialects.simproto.sides import LIMITS, Notes, Side, code_of, exchange, request


def test_notes_leave_dialogs_for_calls_and_feeds_take_turns() -> None:
    limits = DialectLimits(requests=8)
    side = Side(limits)
    for number, topic in enumerate(("news", "odd")):
        side.receive(request(SUBSCRIBE, topic, dialog=number))
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", *[b"%d" % number for number in range(20)])
    assert side.core.free_dialogs == 2
    assert side.said().count(b"news") == 6
    side.sim.outgoing.call("echo", b"", 0.0, None, lambda: None)
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
    assert other.said().count(b"news") == 1  # a single note may be longer
    assert notes.read() == []


@pytest.mark.parametrize("answer", [b"\0", b"\2"], ids=["acknowledged", "not wanted"])
def test_a_finished_topic_is_over_once_its_notes_are_answered(answer: bytes) -> None:
    side = Side()
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", b"one", b"two")
    feed = next(iter(side.fanouts["news"].feeds))
    over: list[object] = []
    feed.on_over = lambda: over.append(feed)
    feed.finish()
    assert feed.left != (0, 0)
    side.receive(serialise_message(RESPONSE, 1, answer))
    assert over == ([] if answer == b"\0" else [feed])
    side.receive(serialise_message(RESPONSE, 2, answer))
    assert set(over) == {feed}
    assert feed.left == (0, 0)
    assert side.ended is None
    assert not side.sim.is_subscribed("news")


@pytest.mark.parametrize("slow", ["drop-oldest", "unsubscribe"])
def test_without_acknowledgements_notes_or_the_subscription_are_lost(slow: Slow) -> None:
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
    side = Side(DialectLimits(longest_frame=64))
    side.receive(request(SUBSCRIBE, "news"))
    side.publish("news", 5, b"x" * 60, b"fits")
    assert side.said() == serialise_message(REQUEST, 1, b"\3\4\0newsfits")
    assert side.fanouts["news"].dropped == 2


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
