"""Servers of a federation in one process, linked in memory, with a clock that the test sets."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import anyio

from parley._crypto.identity import Identity
from parley._node.node import Node
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.testing.clock import FakeClock
from parley._node.testing.nodes import MemoryNetwork
from tests.node.network import PATIENCE, config

NOW = 1_800_000_000.0
Edge = tuple[int, int]


@dataclass
class Servers:
    """Servers in the order of their node IDs, so that paths are predictable."""

    clock: FakeClock
    network: MemoryNetwork
    nodes: list[Node]
    federations: list[Federation]

    async def until(
        self, condition: Callable[[], bool], seconds: float = 60.0, step: float = 0.25
    ) -> None:
        """Let time pass until a condition holds; raise AssertionError after a timeout."""
        end = self.clock.now() + seconds
        while not condition():
            assert self.clock.now() < end
            await self.clock.tick(step)

    def numbers(self, path: Iterable[bytes] | None) -> list[int] | None:
        """Return the numbers of the servers in a path."""
        ids = [node.node_id for node in self.nodes]
        return None if path is None else [ids.index(one) for one in path]  # type: ignore[arg-type]  # node ids are bytes

    def path(self, one: int, other: int) -> list[int] | None:
        return self.numbers(self.federations[one].path(self.nodes[other].node_id))

    def know_all(self) -> bool:
        """Return whether each server has a path to all others."""
        count = len(self.nodes)
        return all(self.path(a, b) for a in range(count) for b in range(count) if a != b)


def ring(count: int) -> list[Edge]:
    """Link each server with the next one, and the last with the first."""
    return [(number, (number + 1) % count) for number in range(count)]


def settings_of(
    number: int,
    nodes: list[Node],
    edges: Collection[Edge],
    carrying: Collection[int] | None,
    **settings: Any,
) -> FederationSettings:
    """Return the settings of servers. The edges define which server dials; all are members, and
    servers that relay do so for all.
    """
    carries = carrying is None or number in carrying
    others = tuple(str(node.node_id) for node in nodes if node is not nodes[number])
    return FederationSettings(
        links=tuple(MemoryNetwork.address(nodes[b]) for a, b in edges if a == number),
        members=others,
        carry=others if carries else (),
        **settings,
    )


@asynccontextmanager
async def servers(
    count: int,
    edges: Collection[Edge],
    *,
    carrying: Collection[int] | None = None,
    ahead: Mapping[int, float] = MappingProxyType({}),
    resume: float = 0.0,
    patience: float = PATIENCE,
    **settings: Any,
) -> AsyncIterator[Servers]:
    """Run so many servers linked by `edges`, the first of each pair dialling. Clocks are `ahead` by
    so many seconds.
    """
    clock = FakeClock(NOW)
    nodes = [
        Node(Identity.create(), config=config(resume=resume, idle_before_ping=600.0), clock=clock)
        for _ in range(count)
    ]
    nodes.sort(key=lambda node: node.node_id)
    with anyio.fail_after(patience):
        async with MemoryNetwork(clock=clock) as network, AsyncExitStack() as stack:
            network.add(*nodes)
            federations = []
            for node in nodes:
                await stack.enter_async_context(node)
            for number, node in enumerate(nodes):
                told = settings_of(number, nodes, edges, carrying, **settings)
                federation = Federation(
                    node,
                    told,
                    dial=network.dial_from(node),
                    wall=partial(_wall, clock, ahead.get(number, 0.0)),
                )
                federations.append(await stack.enter_async_context(federation))
            yield Servers(clock, network, nodes, federations)


def _wall(clock: FakeClock, ahead: float) -> int:
    return int((clock.now() + ahead) * 1000)
