"""A node with a gateway for named events, and clients of it, on loopback.

Everything is closed at the end of its block.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.named import FlavourName, NamedClient, NamedGateway
from tests.node.network import new_node

FLAVOURS: tuple[FlavourName, ...] = ("plain", "typed")


@asynccontextmanager
async def gateway(flavour: FlavourName, **limits: Any) -> AsyncIterator[NamedGateway]:
    async with (
        new_node() as node,
        NamedGateway(node, flavour=flavour, limits=DialectLimits(**limits)) as served,
    ):
        await served.listen("tcp://127.0.0.1:0")
        yield served


def client_of(served: NamedGateway, **options: Any) -> NamedClient:
    return NamedClient(served.addresses[0], flavour=served.flavour, **options)


@asynccontextmanager
async def joined(
    flavour: FlavourName, **limits: Any
) -> AsyncIterator[tuple[NamedGateway, NamedClient]]:
    async with gateway(flavour, **limits) as served, client_of(served) as client:
        yield served, client
