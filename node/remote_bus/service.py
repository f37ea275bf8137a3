"""The bus that a node offers to its peers: one for all of their streams `bus`.

A node offers one bus, once; what a peer may do is up to `allow`, and without it nothing is
allowed. The streams of one connection are few, and share what may wait.
"""

from typing import Protocol

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError
from parley._node.bus.model import Counters
from parley._node.bus.schemas import Schemas
from parley._node.bus.store import Store
from parley._node.errors import ParleyError
from parley._node.handlers.registry import Entry, Handlers
from parley._node.logs import LogRation
from parley._node.protocol.codes import BUS_LABEL, CloseCode
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream
from parley._node.remote_bus import bus_limits as limits
from parley._node.remote_bus.authorisation import (
    LINES,
    LINES_PER_SECOND,
    AllowBus,
    BusGate,
    BusRule,
)
from parley._node.remote_bus.bus_session import BusSession, ConnectionShare
from parley._node.remote_bus.executor import Offer, RequestExecutor
from parley._node.remote_bus.unsettled import Leftovers

# Before the consumers of peers that proved no id: they share their names.
UNENCRYPTED = "unencrypted/"


class Offered(Protocol):
    """What can be offered: a `Bus`."""

    @property
    def config(self) -> BusConfig:
        """Its settings, of which `max_event_bytes` holds for what peers publish."""

    @property
    def schemas(self) -> Schemas:
        """The schemas that what is published has to satisfy."""

    @property
    def counters(self) -> Counters:
        """What was done with its events, by this node and by its peers."""

    async def opened(self) -> Store:
        """Its store, opened now if it was not; raises BusError."""


class BusService:
    """Serves streams `bus`. `gate` is asked before each request; `shares` has the peers that have
    such streams now."""

    def __init__(self, bus: Offered, gate: BusGate) -> None:
        self._bus = bus
        self._gate = gate
        self.shares: dict[LiveConnection, ConnectionShare] = {}
        self._leftovers = Leftovers()
        self._failures = LogRation(LINES, LINES_PER_SECOND)

    def __repr__(self) -> str:
        return f"<BusService: {len(self.shares)} peers, {len(self._leftovers)} events left>"

    async def serve(self, stream: Stream) -> None:
        """Serve one stream to its end; the handler of the label."""
        live = stream.live
        share = self.shares.setdefault(live, ConnectionShare())
        if share.streams >= limits.STREAMS:
            stream.reset(CloseCode.OVERLOADED)
            return
        share.streams += 1
        try:
            try:
                store = await self._bus.opened()
            except BusError:
                stream.reset(CloseCode.INTERNAL_ERROR)
                raise
            prefix = UNENCRYPTED if live.node_id is None else f"{live.node_id}/"
            offer = Offer(store, self._bus.config, self._bus.schemas, self._bus.counters, prefix)
            account, largest = live.core.account, live.limits.max_payload
            executor = RequestExecutor(offer, live.backend, largest, account)
            await BusSession(
                stream, executor, self._gate, share, self._leftovers, self._failures
            ).run()
        finally:
            share.streams -= 1
            if not share.streams:
                del self.shares[live]


def offer_bus(handlers: Handlers, bus: Offered, allow: AllowBus) -> BusService:
    """From now on peers may open streams `bus` to `bus`, which is opened with the first.

    Raises:
        ParleyError: a bus is offered already. ConfigError: `allow` isn't a rule.
    """
    if BUS_LABEL in handlers.reserved:
        raise ParleyError("a node offers one bus, and one is offered already")
    service = BusService(bus, BusGate(BusRule(allow), handlers.exported, handlers.roles))
    handlers.reserved[BUS_LABEL] = Entry(BUS_LABEL, service.serve)
    return service
