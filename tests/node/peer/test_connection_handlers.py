"""Tests of node/peer/connection_handlers.py: the log of how connections end."""

from dataclasses import dataclass

import pytest

from parley._crypto.identity import NodeId
from parley._node.peer.connection_handlers import BURST, PER_SECOND, ConnectionLog
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded


@dataclass
class Somebody:
    """Return the subject of a log line."""

    name: str
    node_id: NodeId | None = None

    def __repr__(self) -> str:
        return self.name


X = Somebody("x")
BAD = ConnectionEnded(CloseCode.PROTOCOL_ERROR, "", remote=False, reason="junk")


def test_each_ending_has_a_line_of_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    endings, now = ConnectionLog(), 50.0
    endings.ended(X, BAD, now, stranger=True)
    endings.ended(X, ConnectionEnded(1, "bye", remote=True, reason="closed"), 50.0, stranger=False)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "x ended: protocol-error (junk)"),
        ("INFO", "x ended: going-away (bye)"),
    ]


def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    endings, now = ConnectionLog(), 50.0
    for _ in range(BURST + 500):
        endings.ended(X, BAD, now, stranger=True)
    assert len(caplog.records) == BURST
    now += 1.0
    for _ in range(500):
        endings.ended(X, BAD, now, stranger=True)
    lines = [record.getMessage() for record in caplog.records[BURST:]]
    assert (
        lines
        == ["500 closed connections of unauthenticated peers were not logged"]
        + ["x ended: protocol-error (junk)"] * PER_SECOND
    )


def test_peers_that_were_let_in_always_have_their_line(caplog: pytest.LogCaptureFixture) -> None:
    endings, now = ConnectionLog(), 50.0
    for _ in range(BURST + 5):
        endings.ended(X, BAD, now, stranger=False)
    assert len(caplog.records) == BURST + 5


def test_who_was_turned_away_shares_the_strangers_lines(caplog: pytest.LogCaptureFixture) -> None:
    endings, now = ConnectionLog(), 50.0
    for _ in range(BURST):
        endings.turned_away("192.0.2.1", "too many connections", now)
    endings.ended(X, BAD, now, stranger=True)
    endings.turned_away("192.0.2.1", "too many connections", now)
    endings.turned_away("192.0.2.1", "too many connections", now + 1.0)
    line = "rejected a connection from 192.0.2.1: too many connections"
    assert [record.getMessage() for record in caplog.records] == [line] * BURST + [
        "2 closed connections of unauthenticated peers were not logged",
        line,
    ]


def test_what_others_say_begins_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    text = "bye\n2026-01-01 WARNING parley: all is well \x1b[2J"
    ConnectionLog().ended(X, ConnectionEnded(1, text, True, ""), 0.0, stranger=False)
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert "bye\\n2026" in record.getMessage()
