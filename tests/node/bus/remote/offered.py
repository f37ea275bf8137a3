"""A bus between two nodes: a store in memory that one offers, and raw streams of the other.

Requests here are bytes of the protocol; `RemoteStore` has its own tests.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from parley._node.bus.config import BusConfig
from parley._node.bus.data import Schemas, encode_body
from parley._node.bus.model import Counters, NewEvent
from parley._node.bus.remote.authorisation import AllowBus, BusRequest
from parley._node.bus.remote.messages import (
    Answer,
    EventRow,
    Publish,
    Request,
    decode_answer,
    encode_request,
)
from parley._node.bus.remote.service import BusService, offer_bus
from parley._node.bus.remote.store import RemoteStore
from parley._node.bus.store import Store
from parley._node.protocol.codes import BUS
from parley._node.remote.stream import Stream
from parley._node.testing import ConnectedNodes
from parley._node.transport.backend import Backend
from tests.node.bus.model_store import ModelStore
from tests.node.network import meeting

NAME = "auth.user_registered"
GROUP = "mailer"


def everything(request: BusRequest) -> bool:
    return True


@dataclass
class OfferedStore:
    """Offers a store without a `Bus`."""

    store: Store
    config: BusConfig
    loop: Backend
    schemas: Schemas = field(default_factory=Schemas)
    counters: Counters = field(default_factory=Counters)
    is_open: bool = False

    async def opened(self) -> Store:
        if not self.is_open:
            self.is_open = True
            await self.store.open(self.loop)
        return self.store


@dataclass
class Between:
    """Two nodes. `peer` is the client's view of the server."""

    nodes: ConnectedNodes
    offered: OfferedStore
    service: BusService

    @property
    def store(self) -> Any:
        return self.offered.store

    async def asking(self, **settings: Any) -> RemoteStore:
        """Yield a `RemoteStore` on the connection."""
        store = RemoteStore(self.nodes.peer.live, self.nodes.peer.streams, BusConfig(**settings))
        await store.open(self.nodes.client.backend)
        return store

    def stream(self) -> Stream:
        """Open a raw `bus` stream."""
        return self.nodes.peer.streams.open_bus()

    @property
    def prefix(self) -> str:
        """The prefix of the client's consumer names."""
        return f"{self.nodes.client.node_id}/"


@asynccontextmanager
async def between(
    allow: AllowBus = everything,
    bus: BusConfig | None = None,
    store: Store | None = None,
    **nodes: Any,
) -> AsyncIterator[Between]:
    """Yield two nodes, of which the server offers a bus to the client."""
    async with meeting(**nodes) as met:
        config = bus or BusConfig()
        offered = OfferedStore(store or ModelStore(config), config, met.server.backend)
        service = offer_bus(met.server.handlers, offered, allow)
        yield Between(met, offered, service)
        await offered.store.aclose()


async def ask(stream: Stream, request: Request, timeout: float = 5.0) -> Answer:
    """Return the answer to a request on a raw stream."""
    number, payload = encode_request(request)
    return await ask_raw(stream, number, payload, timeout)


async def ask_raw(stream: Stream, number: int, payload: bytes, timeout: float = 5.0) -> Answer:
    """Return the answer to any payload."""
    answer = await stream.request(BUS, number, payload=payload, timeout=timeout)
    return decode_answer(answer.payload)


def given(n: int = 1, name: str = NAME, body: str = "{}") -> Publish:
    """Return a request that publishes so many events."""
    return Publish([EventRow(name, body, None, 1)] * n)


def new(n: int, name: str = NAME, key: str | None = None) -> NewEvent:
    """Return an event whose data is {"n": n}."""
    data = {"n": n}
    return NewEvent(name, data, encode_body(data, 1_000), key)
