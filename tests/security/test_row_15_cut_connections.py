"""Row 15. Mistake: a cut connection taken for a clean end.

Promise: wherever the transport ends or breaks in a session, both sides report `connection-lost`.
Streams end only if they were finished, and only a whole Close that was read is a clean end.

The session is cut at every byte of either direction without sockets. Over sockets:
tests/interop/test_cuts.py.
"""

from collections.abc import Callable
from functools import cache
from typing import Literal

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded, StreamFinished, StreamReset
from parley._node.protocol.states import State
from tests.interop.test_cuts import EVERYTHING
from tests.node.protocol.pair import Pair, Side
from tests.security.changed_bytes import FULL, doing
from tests.security.shapes import SHAPES, Shape

Kind = Literal["end", "reset"]
EACH_STRIDE = 1 if FULL else 5

pytestmark = pytest.mark.timeout(3600 if FULL else 60)

CLOSED_HERE = "closed locally"

each_direction = pytest.mark.parametrize("writer", [0, 1], ids=["to responder", "to initiator"])
each_shape = pytest.mark.parametrize(
    "shape", [SHAPES["chain"], SHAPES["each"]], ids=lambda shape: shape.name
)


class Session(Pair):
    """A short session that uses every feature, cut after `size` bytes of one direction.

    With an "end", the reader gets the bytes, then the end, and the reader's last events still reach
    the other side. With a "reset", both learn of it immediately, and data in transit is lost.
    """

    def __init__(self, shape: Shape, writer: int, size: int, kind: Kind) -> None:
        super().__init__(shape.config("initiator"), shape.config("responder"))
        self._writer = self.sides[writer]
        self._left = size
        self._kind = kind
        self.cut = False

    def carry(self, sender: Side) -> bytes:
        """Forward a side's data, up to the cut."""
        sent = sender.take(self.now)
        if self.cut:
            return b""
        passing = sent
        if sender is self._writer:
            passing = sent[: self._left]
            self._left -= len(passing)
        if passing:
            self.deliver(self.other(sender), passing)
        if sender is self._writer and not self._left:
            self._cut()
        return sent

    def _cut(self) -> None:
        self.cut = True
        reader = self.other(self._writer)
        reader.core.receive_eof(self.now)
        reader.collect(self.now)
        if self._kind == "end" and (last := reader.take(self.now)):
            self.deliver(self._writer, last)
        self._writer.core.receive_eof(self.now)
        self._writer.collect(self.now)

    def play(self) -> "Session":
        """Run the session up to the cut, and check that the state is final."""
        stream = 0

        def open_stream() -> None:
            nonlocal stream
            stream = self.a.core.open_stream("app/any")
            self.a.core.send_data(stream, b"data")

        steps: tuple[Callable[[], object], ...] = (
            lambda: self.a.core.send(1, 1, 64, 1, b"a request", lbm=False, seal=True),
            lambda: self.b.core.send(1, 0, 64, 2, b"an answer", lbm=False),
            open_stream,
            lambda: self.b.core.send_data(stream, b"data back"),
            lambda: self.b.core.update_keys(self.now),
            lambda: self.b.core.rekey(self.now),
            lambda: self.b.core.finish_stream(stream),
            lambda: self.a.core.finish_stream(stream),
            lambda: self.a.core.close(self.now),
        )
        self.pump()
        for step in steps:
            if self.cut:
                break
            step()
            self.pump()
        if not self.cut:  # the transport ends after all data was sent
            self._cut()
        before = [len(side.reports) for side in self.sides]
        for side in self.sides:
            side.core.receive_eof(self.now)
        self.run(60.0)
        assert [len(side.reports) for side in self.sides] == before
        return self


@cache
def whole(shape: Shape, writer: int) -> Session:
    """The session without a cut, except for the end of its transport after Close."""
    return Session(shape, writer, EVERYTHING, "end").play()


def said(side: Side) -> list[str]:
    """Return a side's reports before its end, without random values."""
    return [type(report).__name__ for report in side.reports[:-1]]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [(SHAPES["chain"], "end"), (SHAPES["chain"], "reset"), (SHAPES["each"], "reset")],
    ids=["chain-end", "chain-reset", "each-reset"],
)
@each_direction
def test_a_cut_after_each_byte(shape: Shape, writer: int, kind: Kind) -> None:
    uncut = whole(shape, writer)
    size = len(uncut.sides[writer].wire)
    assert size > 800
    for place in range(0, size, 1 if shape is SHAPES["chain"] else EACH_STRIDE):
        with doing(f"cut after {place} bytes of {size}"):
            session = Session(shape, writer, place, kind).play()
            for side, reference in zip(session.sides, uncut.sides, strict=True):
                assert side.core.state is State.ENDED
                ended = side.one(ConnectionEnded)
                assert side.reports[-1] is ended
                if ended.reason == CLOSED_HERE:
                    continue  # its own Close was sent, so it knows of a clean end
                assert (ended.code, ended.remote) == (CloseCode.CONNECTION_LOST, False)
                # The cut has no other effect: no stream finished, and no data was delivered.
                assert said(side) == said(reference)[: len(said(side))]
                assert not side.all(StreamReset)


@each_shape
def test_only_a_whole_close_is_a_clean_end(shape: Shape) -> None:
    uncut = whole(shape, 0)
    assert uncut.a.one(ConnectionEnded).reason == CLOSED_HERE
    responder = uncut.b.one(ConnectionEnded)
    assert (responder.code, responder.remote) == (CloseCode.NORMAL, True)
    assert uncut.a.one(ConnectionEnded).code == CloseCode.NORMAL
    assert uncut.a.all(StreamFinished)
    assert uncut.b.all(StreamFinished)
    # With one byte less it isn't.
    size = len(uncut.a.wire)
    cut = Session(shape, 0, size - 1, "end").play()
    assert cut.b.one(ConnectionEnded).code == CloseCode.CONNECTION_LOST


@each_direction
def test_a_session_says_the_same_each_time(writer: int) -> None:
    """The reports must be equal in each run, so that a byte's number means the same byte."""
    first = whole(SHAPES["chain"], writer)
    again = Session(SHAPES["chain"], writer, len(first.sides[writer].wire), "end").play()
    assert len(first.sides[writer].wire) == len(again.sides[writer].wire)
    reader = 1 - writer
    assert said(again.sides[reader]) == said(first.sides[reader])[: len(said(again.sides[reader]))]
