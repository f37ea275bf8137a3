"""`TunnelService`: serves the streams `tunnel` that peers open.

It asks the node's `Switch` about each Dial, answers, and joins two streams or begins an inner
connection. There is one task for each tunnel, and none for what passes.
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
from parley._node.tunnels.policy import IncomingDial, Switch
from parley._node.tunnels.splice import Joint
from parley._node.tunnels.tunnel_transport import TunnelOutlet

# Seconds in which Dial has to come on a stream that was opened for it.
DIAL_PATIENCE: Final = HANDSHAKE_TIMEOUT
_ASYNC_ID: Final = 1
_SECOND: Final = 1_000_000_000


class TunnelService:
    """Tunnels that come to the node `node_id`, or lead on from it.

    `accept` makes the driver of an inner connection that ends here, of whose origin it is told the
    name; None: there is no room. `on_over` is given the record of each tunnel that was joined here,
    when that is over; `wall` is the time in ns since 1970.
    """

    def __init__(
        self,
        node_id: NodeId,
        switch: Switch,
        accept: Callable[[str], Driver | None],
        metrics: Metrics,
        on_over: Callable[[TunnelRecord], None] = lambda record: None,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._node_id = node_id
        self._switch = switch
        self._accept = accept
        self._on_over = on_over
        self._wall = wall
        self._neighbours: dict[TunnelStream, NodeId] = {}  # who dialled them
        self.joints: dict[Joint, tuple[NodeId, ...]] = {}  # with their paths
        self._metrics = metrics

    def __repr__(self) -> str:
        return f"<TunnelService: {self.count} tunnels>"

    @property
    def count(self) -> int:
        """Tunnels that end here or lead on, or are about to."""
        return len(self._neighbours)

    def end_unless(self, may_dial: Callable[[NodeId], bool]) -> None:
        """Reset the tunnels of neighbours that may not dial any more."""
        for stream, neighbour in list(self._neighbours.items()):
            if not may_dial(neighbour):
                stream.end(CloseCode.NOT_AUTHORISED)

    async def serve(self, stream: Stream) -> None:
        """Serve one stream to its end; the handler of the label."""
        assert isinstance(stream, TunnelStream)  # its label says so
        loop = stream.live.backend
        timer = loop.at(loop.now() + DIAL_PATIENCE, lambda: stream.reset(CloseCode.TIMEOUT))
        with suppress(StreamResetError, PeerClosedError, EndOfStream, ClosedResourceError):
            try:
                event = await stream.receive_event()
            finally:
                timer.cancel()
            if (event.subcategory, event.async_id) != (DIAL, _ASYNC_ID):
                stream.reset(CloseCode.PROTOCOL_ERROR)
            else:
                await self._dialled(stream, event)

    async def _dialled(self, stream: TunnelStream, event: StreamEvent) -> None:
        """Decide about a Dial, and serve what comes of it to its end."""
        try:
            dial = _read(stream, event.payload)
        except TunnelRefusedError as error:
            await self._answer(event, error.code)
            return
        loop = stream.live.backend
        self._neighbours[stream] = dial.neighbour
        try:
            with anyio.CancelScope() as scope:
                event.when_cancelled(scope.cancel)
                timer = loop.at(dial.deadline, scope.cancel)
                try:
                    async with self._switch.decide(dial) as onward:
                        timer.cancel()
                        await self._open(stream, event, dial, onward)
                finally:
                    timer.cancel()
            if event.cancelled:
                stream.reset()
            elif scope.cancelled_caught:
                raise TunnelRefusedError(ResultCode.DEADLINE_EXCEEDED)
        except TunnelRefusedError as error:
            await self._answer(event, error.code, error.text, self._hop(dial, error.hop))
        finally:
            del self._neighbours[stream]

    def _hop(self, dial: IncomingDial, said: int | None) -> int | None:
        """Whose refusal it is, by its index in the path; None if it has no path."""
        if said is None and dial.path is not None and self._node_id in dial.path:
            return dial.path.index(self._node_id)
        return 0 if said is None and dial.to is not None else said

    async def _open(
        self,
        stream: TunnelStream,
        event: StreamEvent,
        dial: IncomingDial,
        onward: TunnelOutlet | None,
    ) -> None:
        try:
            if onward is None:
                await self._end_here(stream, event, dial)
            else:
                await self._join(stream, event, dial, onward)
        finally:
            if onward is not None:
                onward.close()

    async def _end_here(self, stream: TunnelStream, event: StreamEvent, dial: IncomingDial) -> None:
        """Be the responder of a handshake over it; return when the tunnel is over."""
        driver = self._accept(f"tunnel of {dial.neighbour.short}")
        if driver is None:
            raise TunnelRefusedError(ResultCode.OVERLOADED)
        tunnel = TunnelOutlet(stream, dial.path or (self._node_id,))
        over = stream.live.backend.waiter()
        tunnel.on_closed = over.wake
        tunnel.attach(driver)
        try:
            await self._answer(event, ResultCode.ACCEPTED)
            await over.wait()
        finally:
            tunnel.failed(CloseCode.GOING_AWAY)

    async def _join(
        self,
        stream: TunnelStream,
        event: StreamEvent,
        dial: IncomingDial,
        onward: TunnelOutlet,
    ) -> None:
        began = self._wall()
        hop = onward.path.index(self._node_id)
        joint = Joint(stream, onward.stream, stream.live.backend)
        stream.accept()
        await self._answer(event, ResultCode.ACCEPTED)
        self.joints[joint] = onward.path
        try:
            await joint.run()
        finally:
            del self.joints[joint]
            record = TunnelRecord(
                dial.trace,
                hop,
                len(onward.path),
                dial.neighbour,
                onward.path[hop + 1],
                began / _SECOND,
                self._wall() / _SECOND,
                joint.forward,
                joint.back,
            )
            self._metrics.tunnelled += joint.forward + joint.back
            self._on_over(record)

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
    """From now on peers may open streams `tunnel`.

    Raises:
        ParleyError: they may already.
    """
    if TUNNEL_LABEL in handlers.reserved:
        raise ParleyError("tunnels are served already")
    handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, service.serve)


def _read(stream: TunnelStream, payload: bytes) -> IncomingDial:
    """A Dial as it came; raises TunnelRefusedError for what may not be."""
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
