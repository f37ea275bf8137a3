"""Our side with a server between: a target that is reached through tunnels, and the one hop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.ours import Ours
from benchmarks.sides import Publish
from benchmarks.task import Task
from node.federation.exports import Exports
from node.tunnels.dialling import dial_tunnel
from node.tunnels.outlet import TunnelOutlet
from node.tunnels.switch import IncomingDial
from parley import Node, Peer


class Passing:
    """The switch of a server that leads to one target, and that of the target."""

    def __init__(self, node: Node, onward: Peer | None = None) -> None:
        self._node = node
        self._onward = onward

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelOutlet | None]:
        if self._onward is None or self._onward.node_id is None:
            yield None
        else:
            path = self._node.node_id, self._onward.node_id
            yield await dial_tunnel(self._onward, path=path, trace=dial.trace, timeout=5.0)


class Target(Ours):
    """What our side serves, also to whoever comes through a tunnel."""

    @asynccontextmanager
    async def node(self, task: Task) -> AsyncIterator[Node]:
        """A node at which tunnels may end."""
        async with super().node(task) as node:
            node.handlers.exports.add(Exports(["echo", "sink"]))
            node.serve_tunnels(Passing(node))
            yield node


class Hop(Ours):
    """The server between; the task's `how` is the address of the target."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A node that joins tunnels, and what leads through one to the target."""
        async with self.node(task) as node:
            target = await node.connect(task.how)
            node.serve_tunnels(Passing(node, target))
            here = (await node.listen("tcp://127.0.0.1:0")).removeprefix("tcp://").partition("#")[0]
            via = f"via://{here}/{node.node_id}#{target.node_id}"

            async def publish(_: float) -> int:
                return 0

            yield {"address": via}, publish
