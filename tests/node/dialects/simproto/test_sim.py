"""Requests, notes and answers: topics in both directions, with exactly the document's codes."""

from parley._node.dialects.simproto.codec import (
    REQUEST,
    SUBSCRIBE,
    UNSUBSCRIBE,
    serialise_message,
)
from parley._node.protocol.codes import CloseCode
from tests.node.dialects.simproto.sides import Notes, Side, exchange, request


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
