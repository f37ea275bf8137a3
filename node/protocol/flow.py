"""Flow control as it stands: for whoever watches a connection, in tests and in production.

It is a copy, taken between two events; nothing changes by looking. All numbers
of a stream are bytes of cost, an event's payload and 64 (docs/protocol.md section 8).
"""

from dataclasses import dataclass

from parley._node.protocol.streams import Streams, StreamState


@dataclass(frozen=True, slots=True)
class StreamFlow:
    """One stream from 2 up.

    `credit` is what we may still send, None once our direction has ended. Of the window
    that we read under, `left` is what the other side may still send, `consumed` what was
    used up and is not yet granted again, both 0 once its direction has ended; so what
    the application holds or was never given back is `held`.
    """

    credit: int | None
    window: int
    left: int
    consumed: int

    @property
    def held(self) -> int:
        """What came and was not given back by `consume`; 0 for a stream at rest."""
        return self.window - self.left - self.consumed


@dataclass(frozen=True, slots=True)
class Flow:
    """All streams that are not gone, by id.

    `unconsumed` is what was reported on all streams and not yet given back, `committed`
    the sum of the windows, `queued_events` what waits to be encrypted.
    """

    streams: dict[int, StreamFlow]
    unconsumed: int
    committed: int
    queued_events: int


def stream_flows(streams: Streams) -> dict[int, StreamFlow]:
    """Each of them as it stands."""
    return {known.id: _flow(known) for known in streams.open.values()}


def _flow(known: StreamState) -> StreamFlow:
    window = known.window
    return StreamFlow(
        known.credit.left if known.local_open else None,
        window.size if known.remote_open else 0,
        window.left if known.remote_open else 0,
        window.consumed if known.remote_open else 0,
    )
