"""Requests, notes and answers: topics both ways, with exactly the document's codes."""

from parley._node.dialects.simproto.codec import (
    NOTIFY,
    REQUEST,
    RESPONSE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    serialise_message,
)
from parley._node.protocol.codes import CloseCode
from tests.node.dialects.simproto.sides import Notes, Side, code_of, exchange, request


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
