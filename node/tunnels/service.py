"""`TunnelService`: serves the `tunnel` streams that peers open.

It passes each Dial to the node's `DialPolicy`, answers, and splices two streams or accepts an inner
connection. Each tunnel has one task; its data needs none.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio import ClosedResourceError, EndOfStream

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ParleyError, PeerClosedError, StreamResetError, TunnelRefusedError
from parley._node.federation.dials import TunnelRecord
from parley._node.federation.limits import LONGEST_DIAL
from parley._node.handlers.registry import Entry, Handlers
from parley._node.metrics.metrics import Metrics
from parley._node.protocol.codes import (
    DIAL,
    TUNNEL,
    TUNNEL_ANSWER,
    TUNNEL_LABEL,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.event_types import DIAL as DIAL_CELLS
from parley._node.protocol.limits import HANDSHAKE_TIMEOUT
from parley._node.remote.stream import Stream, StreamEvent
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.driver import Driver
from parley._node.tunnels.policy import DialPolicy, IncomingDial
from parley._node.tunnels.splice import Splice
from parley._node.tunnels.tunnel_transport import TunnelTransport

# Seconds after which a stream without a Dial is reset.
DIAL_WAIT: Final = HANDSHAKE_TIMEOUT
_ASYNC_ID: Final = 1
_SECOND: Final = 1_000_000_000


class TunnelService:
    """The tunnels that end at the node `node_id` or lead through it.

    `accept` returns the driver of an inner connection that ends here, given the name of its origin
    for the log; it returns None if the node has no capacity. `on_closed` is called with the record
    of each spliced tunnel when it has ended; `wall` returns the time in ns since 1970.
    """

    def __init__(
        self,
        node_id: NodeId,
        policy: DialPolicy,
        accept: Callable[[str], Driver | None],
        metrics: Metrics,
        on_closed: Callable[[TunnelRecord], None] = lambda record: None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._node_id = node_id
        self._policy = policy
        self._accept = accept
        self._on_closed = on_closed
        self._wall = wall
        self._diallers: dict[TunnelStream, NodeId] = {}
        self._splices: dict[Splice, tuple[NodeId, ...]] = {}  # with their paths
        self._metrics = metrics

    def __repr__(self) -> str:
        return f"<TunnelService: {self.count} tunnels>"

    @property
    def count(self) -> int:
        """Number of tunnels that end here or lead through here, or are being opened."""
        return len(self._diallers)

    @property
    def splices(self) -> list[Splice]:
        """The tunnels that lead through here."""
        return list(self._splices)

    @property
    def paths(self) -> list[tuple[NodeId, ...]]:
        """The paths of the tunnels that lead through here, from origin to target."""
        return list(self._splices.values())

    def end_unless(self, may_dial: Callable[[NodeId], bool]) -> None:
        """Reset the tunnels of neighbours that may no longer dial."""
        for stream, dialler in list(self._diallers.items()):
            if not may_dial(dialler):
                stream.end(CloseCode.NOT_AUTHORISED)

    async def serve(self, stream: Stream) -> None:
        """Handle one stream, until its end."""
        assert isinstance(stream, TunnelStream)  # guaranteed by its label
        loop = stream.live.backend
        timer = loop.call_at(loop.now() + DIAL_WAIT, lambda: stream.reset(CloseCode.TIMEOUT))
        with suppress(StreamResetError, PeerClosedError, EndOfStream, ClosedResourceError):
            try:
                event = await stream.receive_event()
            finally:
                timer.cancel()
            if (event.subcategory, event.async_id) != (DIAL, _ASYNC_ID):
                stream.reset(CloseCode.PROTOCOL_ERROR)
            else:
                await self._handle_dial(stream, event)

    async def _handle_dial(self, stream: TunnelStream, event: StreamEvent) -> None:
        """Decide about a Dial and serve its tunnel, until the end."""
        try:
            dial = _read(stream, event.payload)
        except TunnelRefusedError as error:
            await self._answer(event, error.code)
            return
        loop = stream.live.backend
        self._diallers[stream] = dial.neighbour
        try:
            with anyio.CancelScope() as scope:
                event.when_cancelled(scope.cancel)
                timer = loop.call_at(dial.deadline, scope.cancel)
                try:
                    async with self._policy.decide(dial) as onward:
                        timer.cancel()
                        if onward is None:
                            await self._end_here(stream, event, dial)
                        else:
                            await self._splice(stream, event, dial, onward)
                finally:
                    timer.cancel()
            if event.cancelled:
                stream.reset()
            elif scope.cancelled_caught:
                raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED)
        except TunnelRefusedError as error:
            await self._answer(event, error.code, error.text, self._hop(dial, error.hop))
        finally:
            del self._diallers[stream]

    def _hop(self, dial: IncomingDial, hop: int | None) -> int | None:
        """Return the path index of the refusing node; None if the Dial has no path."""
        if hop is None and dial.path is not None and self._node_id in dial.path:
            return dial.path.index(self._node_id)
        return 0 if hop is None and dial.to is not None else hop

    async def _end_here(self, stream: TunnelStream, event: StreamEvent, dial: IncomingDial) -> None:
        """Accept the inner connection; return when the tunnel is over."""
        driver = self._accept(f"tunnel of {dial.neighbour.short}")
        if driver is None:
            raise TunnelRefusedError(ResultCode.OVERLOADED)
        tunnel = TunnelTransport(stream, dial.path or (self._node_id,))
        over = stream.live.backend.waiter()
        tunnel.add_closed_callback(over.wake)
        tunnel.attach(driver)
        try:
            await self._answer(event, ResultCode.ACCEPTED)
            await over
        finally:
            tunnel.failed(CloseCode.GOING_AWAY)

    async def _splice(
        self,
        stream: TunnelStream,
        event: StreamEvent,
        dial: IncomingDial,
        onward: TunnelTransport,
    ) -> None:
        """Forward Data between `stream` and `onward`, and close that."""
        try:
            began = self._wall()
            hop = onward.path.index(self._node_id)
            splice = Splice(stream, onward.stream, stream.live.backend)
            stream.accept()
            await self._answer(event, ResultCode.ACCEPTED)
            self._splices[splice] = onward.path
            try:
                await splice.run()
            finally:
                del self._splices[splice]
                self._record(dial, onward.path, hop, began, splice)
        finally:
            onward.close()

    def _record(
        self, dial: IncomingDial, path: tuple[NodeId, ...], hop: int, began: int, splice: Splice
    ) -> None:
        record = TunnelRecord(
            dial.trace,
            hop,
            len(path),
            dial.neighbour,
            path[hop + 1],
            began / _SECOND,
            self._wall() / _SECOND,
            splice.forward,
            splice.back,
        )
        self._metrics.tunnelled += splice.forward + splice.back
        self._on_closed(record)

    async def _answer(
        self, event: StreamEvent, code: int, text: str = "", hop: int | None = None
    ) -> None:
        self._metrics.tunnels_dialled[code] += 1
        cells: dict[int, Value] = {keys.CODE: code}
        if text:
            cells[keys.TEXT] = text
        if hop is not None:
            cells[keys.HOP] = hop
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=encode(cells))


def offer_tunnels(handlers: Handlers, service: TunnelService) -> None:
    """Let peers open `tunnel` streams, which `service` serves.

    Raises:
        ParleyError: another service serves them already.
    """
    if TUNNEL_LABEL in handlers.reserved:
        raise ParleyError("cannot serve tunnels: another service does already")
    handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, service.serve)


def _read(stream: TunnelStream, payload: bytes) -> IncomingDial:
    """Read a Dial; raises TunnelRefusedError if it is not allowed or is malformed."""
    live = stream.live
    if live.node_id is None or live.path:
        raise TunnelRefusedError(ResultCode.NOT_AUTHORISED)
    try:
        cells = DIAL_CELLS.read(payload)
    except LbmDecodeError as error:
        raise TunnelRefusedError(ResultCode.MALFORMED) from error
    seconds = min(cells[keys.DEADLINE_MS] / 1_000, LONGEST_DIAL)
    path, to = cells.get(keys.PATH), cells.get(keys.TO)
    return IncomingDial(
        live.node_id,
        None if path is None else tuple(map(NodeId, path)),
        None if to is None else tuple(map(NodeId, to)),
        cells[keys.TRACE],
        live.backend.now() + seconds,
        stream,
    )
