"""A server that is stopped and restarted under one identity and one address."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus

from parley import Node
from parley._crypto.identity import Identity
from parley._node.backoff import Backoff
from parley._node.protocol.codes import CloseCode
from tests.node.network import PATIENCE, config

QUICK = Backoff(first=0.002, longest=0.01)

# Registers the offers of a server, at each start.
Offer = Callable[[Node], None]


class Server:
    """A server at one address; `node` is the one that runs, if any does. Each has a task of its
    own among `tasks`."""

    def __init__(self, tasks: TaskGroup, offer: Offer, **settings: Any) -> None:
        self.identity = Identity.create()
        self.address = "tcp://127.0.0.1:0"
        self.node: Node | None = None
        self.starts = 0
        self._tasks = tasks
        self._offer = offer
        self._settings = {"drain_timeout": 0, **settings}
        self._enough = anyio.Event()
        self._gone = anyio.Event()

    async def start(self) -> Node:
        """Start a server without the state of the previous one."""
        node: Node = await self._tasks.start(self._run)
        self.starts += 1
        return node

    async def _run(self, *, task_status: TaskStatus[Node]) -> None:
        self._enough, self._gone = anyio.Event(), anyio.Event()
        node = Node(self.identity, config=config(**self._settings))
        self._offer(node)
        async with node:
            self.address = await node.listen(self.address.partition("#")[0])
            self.node = node
            task_status.started(node)
            await self._enough.wait()
            self.node = None
        self._gone.set()

    async def kill(self) -> None:
        """End it at once: who is connected learns it from the end of the transport alone."""
        for peer in list(self.node.peers if self.node else ()):
            peer.core.abort(peer.backend.now(), CloseCode.CONNECTION_LOST, "killed")
            peer.driver.step()
        await self.stop()

    async def stop(self) -> None:
        """End it in order."""
        self._enough.set()
        await self._gone.wait()


@asynccontextmanager
async def serving(offer: Offer = lambda node: None, **settings: Any) -> AsyncIterator[Server]:
    """A server that runs."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            server = Server(tasks, offer, **settings)
            await server.start()
            yield server
            await server.stop()
