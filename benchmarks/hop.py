"""Our side through a tunnel: a target, and a server between it and the client in a process of its
own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio

from benchmarks.ours import Ours
from benchmarks.process import Child
from benchmarks.sides import Publish
from benchmarks.task import Order, Task
from parley import Node, Peer
from parley._node.federation.exports import Exports
from parley._node.tunnels.dial import dial_tunnel
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelTransport


class Forward:
    """The policy of the target, and of the server that forwards each tunnel to the target."""

    def __init__(self, node: Node, target: Peer | None = None) -> None:
        self._node = node
        self._target = target

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
        """Open a tunnel to the target, or end the tunnel here."""
        target = self._target
        if target is None or target.node_id is None:
            yield None
        else:
            path = self._node.node_id, target.node_id
            yield await dial_tunnel(target, path=path, trace=dial.trace, timeout=5.0)


class Tunnelled(Ours):
    """Parley through one hop. The server process starts the process of the hop."""

    @asynccontextmanager
    async def node(self, task: Task) -> AsyncIterator[Node]:
        """A node at which tunnels may end."""
        async with super().node(task) as node:
            node.handlers.exports.add(Exports(["echo", "sink"]))
            node.connections.serve_tunnels(Forward(node))
            yield node

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The target; clients get the address through the hop."""
        async with super().serve(task) as (info, publish):
            with Child(Order("hop", "uvloop", replace(task, how=info["address"]))) as hop:
                yield await anyio.to_thread.run_sync(hop.hear) | {"between": [hop.pid]}, publish


class Hop(Ours):
    """The server between; the task's `how` is the address of the target."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A node that splices tunnels to the target."""
        async with self.node(task) as node:
            target = await node.connect(task.how)
            node.connections.serve_tunnels(Forward(node, target))
            here = (await node.listen("tcp://127.0.0.1:0")).removeprefix("tcp://").partition("#")[0]

            async def publish(_: float) -> int:
                return 0

            yield {"address": f"via://{here}/{node.node_id}#{target.node_id}"}, publish
