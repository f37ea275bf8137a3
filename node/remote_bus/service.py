"""The bus that a node offers to its peers: one for all of its streams `bus`.

One rule: the streams of one connection are few, and share what may wait. Knows peers and streams;
what is asked on a stream is its `Session`'s.
"""

from typing import Protocol

from node.bus.config import BusConfig
from node.bus.errors import BusError
from node.bus.schemas import Schemas
from node.bus.store import Store
from node.logs import LogRation
from node.peer.peer import Peer
from node.protocol.codes import CloseCode
from node.remote_bus import limits
from node.remote_bus.authorisation import LINES, LINES_PER_SECOND, Allow, Gate
from node.remote_bus.handed import Left
from node.remote_bus.performing import Performing
from node.remote_bus.session import Session
from node.streams.stream import Stream

# Before the consumers of peers that proved no id: they share their names.
UNENCRYPTED = "unencrypted/"


class Offered(Protocol):
    """What can be offered: a `Bus`."""

    @property
    def config(self) -> BusConfig:
        """Its settings, of which `max_event_bytes` holds for what peers publish."""

    @property
    def schemas(self) -> Schemas:
        """What is published has to be as these say."""

    async def opened(self) -> Store:
        """Its store, opened now if it was not; raises BusError."""


class Crowd:
    """What one connection has here: how many streams, and Reads that wait."""

    __slots__ = ("streams", "waiting")

    def __init__(self) -> None:
        self.streams = 0
        self.waiting = 0


class BusService:
    """Serves streams `bus`. `allow` is asked before each request."""

    def __init__(self, bus: Offered, allow: Allow | None) -> None:
        self._bus = bus
        self._gate = Gate(allow)
        self._crowds: dict[Peer, Crowd] = {}
        self._left = Left()
        self._failures = LogRation(LINES, LINES_PER_SECOND)

    def __repr__(self) -> str:
        return f"<BusService: {len(self._crowds)} peers, {len(self._left)} events left>"

    async def serve(self, stream: Stream) -> None:
        """Serve one stream to its end; the handler of the label."""
        peer = stream.peer
        crowd = self._crowds.setdefault(peer, Crowd())
        if crowd.streams >= limits.STREAMS:
            stream.reset(CloseCode.OVERLOADED)
            return
        crowd.streams += 1
        try:
            await self._serve(stream, crowd)
        finally:
            crowd.streams -= 1
            if not crowd.streams:
                del self._crowds[peer]

    async def _serve(self, stream: Stream, crowd: Crowd) -> None:
        peer = stream.peer
        try:
            store = await self._bus.opened()
        except BusError:
            stream.reset(CloseCode.INTERNAL_ERROR)
            raise
        performing = Performing(
            store,
            self._bus.config,
            self._bus.schemas,
            peer.backend,
            UNENCRYPTED if peer.node_id is None else f"{peer.node_id}/",
            peer.limits.max_payload,
            self._left,
            peer.core.account,
        )
        await Session(stream, performing, self._gate, crowd, self._failures).run(self._left)
