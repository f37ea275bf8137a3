"""The table of streams: which directions are open, and their credit.

A direction ends with Finish or with a Reset of its sender. A stream is closed when both directions
have ended (docs/protocol.md section 8).
"""

from dataclasses import dataclass

from parley._node.protocol.codes import (
    FIRST_INITIATOR_STREAM,
    FIRST_RESPONDER_STREAM,
    LAST_STREAM,
    MAIN_STREAM,
    CloseCode,
)
from parley._node.protocol.errors import (
    LimitReachedError,
    LocalProtocolError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.flow_control import (
    LARGEST_TUNNEL_WINDOW,
    TUNNEL_GROWTH,
    TUNNEL_WINDOW,
    ReceiveWindow,
    SendCredit,
)
from parley._node.protocol.memory_budget import STREAM_WEIGHT, MemoryBudget


class StreamState:
    """A stream from 2 up. While `resetting` (we sent Reset), received events are dropped. If a
    stream is `apart`, its window doesn't count in the sum of windows.
    """

    __slots__ = (
        "apart",
        "credit",
        "finishing",
        "id",
        "local_open",
        "ours",
        "remote_open",
        "resetting",
        "window",
    )

    def __init__(
        self, stream: int, ours: bool, credit: SendCredit, window: ReceiveWindow, apart: bool
    ) -> None:
        self.id = stream
        self.apart = apart
        self.ours = ours
        self.credit = credit
        self.window = window
        self.local_open = True
        self.remote_open = True
        self.finishing = False  # our Finish waits in the send queue
        self.resetting = False


class Streams:
    """The streams of one connection that aren't closed.

    `committed` is the sum of the local windows in bytes, except those of streams that are `apart`.
    `grown` is the number of bytes by which those exceed their initial size.
    Streams that the peer opened are charged to `account`.
    """

    __slots__ = (
        "_account",
        "_initiator",
        "_last_remote",
        "_maximum",
        "_ours",
        "_theirs",
        "committed",
        "grown",
        "last_local",
        "open",
    )

    def __init__(self, initiator: bool, maximum: int, account: MemoryBudget) -> None:
        self._account = account
        self._initiator = initiator
        self._maximum = maximum
        self.last_local = 0
        self._last_remote = 0
        self._ours = 0
        self._theirs = 0
        self.open: dict[int, StreamState] = {}
        self.committed = 0
        self.grown = 0

    def admit(self, stream: int) -> None:
        """Check that an event on a stream without a key is allowed.

        Raises:
            RemoteProtocolError: `protocol-error`.
        """
        if stream <= MAIN_STREAM:
            return
        known = self.open.get(stream)
        if known is not None:
            if known.remote_open:
                return
            raise violation(f"an event on the ended direction of stream {stream}")
        if self._is_local(stream) or stream <= self._last_remote:
            raise violation(f"an event on stream {stream}, which is not open")

    def open_local(self, credit: int, window: int, *, apart: bool = False) -> StreamState:
        """Open a stream locally.

        Raises:
            LimitReachedError: the agreed number of streams is open, or all IDs were used.
        """
        if self._ours >= self._maximum:
            raise LimitReachedError(f"cannot open a stream: {self._maximum} are open (max_streams)")
        first = FIRST_INITIATOR_STREAM if self._initiator else FIRST_RESPONDER_STREAM
        stream = self.last_local + 2 if self.last_local else first
        if stream > LAST_STREAM:
            raise LimitReachedError(
                f"cannot open a stream: all IDs were used, the next would be {stream}"
            )
        self.last_local = stream
        self._ours += 1
        return self._add(
            StreamState(stream, True, SendCredit(credit), ReceiveWindow(window), apart)
        )

    def open_remote(
        self, stream: int, credit: int, window: int, *, apart: bool = False
    ) -> StreamState:
        """Add a stream that the peer opened (`admit` accepted it).

        Raises:
            RemoteProtocolError: `protocol-error` if it is already open, or `too-many-streams`.
        """
        if stream <= MAIN_STREAM or stream in self.open:
            raise violation(f"Open on stream {stream}, which is open")
        if self._theirs >= self._maximum:
            raise RemoteProtocolError(
                CloseCode.TOO_MANY_STREAMS, f"more than {self._maximum} streams"
            )
        self._last_remote = stream
        self._theirs += 1
        self._account.charge(STREAM_WEIGHT)
        return self._add(
            StreamState(stream, False, SendCredit(credit), ReceiveWindow(window), apart)
        )

    def get_live(self, stream: int) -> StreamState | None:
        """Return the stream that a Window or Reset names; None if it is closed.

        Raises:
            RemoteProtocolError: `protocol-error`: stream 0 or 1, or a stream that was never opened.
        """
        known = self.open.get(stream)
        if known is None:
            last = self.last_local if self._is_local(stream) else self._last_remote
            if stream <= MAIN_STREAM or stream > last:
                raise violation(f"stream {stream} was never opened")
        return known

    def get_local(self, stream: int) -> StreamState:
        """Return a stream that we can write to.

        Raises:
            LocalProtocolError: it is not open, or our direction has ended.
        """
        known = self.open.get(stream)
        if known is None or not known.local_open or known.finishing:
            raise LocalProtocolError(f"stream {stream} is not open for sending")
        return known

    def end_local(self, stream: StreamState) -> None:
        stream.local_open = False
        stream.finishing = False
        self._sweep(stream)

    def end_remote(self, stream: StreamState) -> None:
        if stream.remote_open:
            if stream.apart:
                self.grown -= stream.window.size - TUNNEL_WINDOW
            else:
                self.committed -= stream.window.size
        stream.remote_open = False
        self._sweep(stream)

    def resize(self, stream: StreamState, window: int) -> None:
        """Change the window of a stream that the peer opened."""
        if stream.remote_open:
            self.committed += window - stream.window.size
        stream.window.resize(window)

    def consume(self, stream: StreamState, cost: int, budget: int) -> int:
        """Count `cost` as consumed; return the credit to grant now (may be 0)."""
        if stream.apart:
            grant = stream.window.consume(cost)
            return grant and grant + self._grow(stream.window)
        before = stream.window.size
        grant = stream.window.consume(cost, shrink=self.committed > budget)
        self.committed += stream.window.size - before
        return grant

    def end(self) -> None:
        self._account.release(STREAM_WEIGHT * self._theirs)
        self._theirs = 0

    def _add(self, stream: StreamState) -> StreamState:
        self.open[stream.id] = stream
        if not stream.apart:
            self.committed += stream.window.size
        return stream

    def _grow(self, window: ReceiveWindow) -> int:
        """Double the window of a tunnel within the limits; return the number of bytes added."""
        size = window.size
        added = min(size, LARGEST_TUNNEL_WINDOW - size, TUNNEL_GROWTH - self.grown)
        window.resize(size + added)
        self.grown += added
        return added

    def _sweep(self, stream: StreamState) -> None:
        if stream.local_open or stream.remote_open:
            return
        del self.open[stream.id]
        if stream.ours:
            self._ours -= 1
        else:
            self._theirs -= 1
            self._account.release(STREAM_WEIGHT)

    def _is_local(self, stream: int) -> bool:
        return (stream % 2 == 1) == self._initiator


@dataclass(frozen=True, slots=True)
class StreamFlow:
    """Credit and window of one stream from 2 up, in bytes of cost.

    `credit` is how much we may still send, None once our direction has ended. Of our `window`,
    `left` is how much the peer may still send, and `consumed` is used but not yet granted again.
    """

    credit: int | None
    window: int
    left: int
    consumed: int

    @property
    def held(self) -> int:
        """Bytes that were received and not yet given back with `consume`."""
        return self.window - self.left - self.consumed


@dataclass(frozen=True, slots=True)
class Flow:
    """A copy of the flow control state of all streams, by ID.

    `unconsumed` was reported on all streams and not yet given back, `committed` is the sum of the
    windows, and `queued_events` wait to be encrypted.
    """

    streams: dict[int, StreamFlow]
    unconsumed: int
    committed: int
    queued_events: int


def stream_flows(streams: Streams) -> dict[int, StreamFlow]:
    return {known.id: _flow(known) for known in streams.open.values()}


def _flow(known: StreamState) -> StreamFlow:
    window = known.window
    return StreamFlow(
        known.credit.left if known.local_open else None,
        window.size if known.remote_open else 0,
        window.left if known.remote_open else 0,
        window.consumed if known.remote_open else 0,
    )
