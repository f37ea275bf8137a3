"""The processes that the tests kill: they publish, consume, or offer a bus.

Each process immediately records completed work, in one write to an append-only file: an event's ID
after `publish` returned, and a processed event before it is acknowledged. A restarted process
continues from there, and publishes the last event again with its key.
"""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio

from parley import Node, NodeConfig
from parley._crypto.identity import Identity
from parley._crypto.registry import SIGNING
from parley._node.bus.address import open_bus
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusError
from parley._node.bus.event import BusEvent
from parley._node.errors import ParleyError
from parley._node.trust.policies import AnyPeer

STREAM: Final = "shop.sold"
GROUP: Final = "ledger"
# The imports that a stage needs for these processes, or for `load`.
MODULES: Final = (
    "coredis",
    "parley._node.bus.bus",
    "parley._node.bus.redis.store",
    "parley._node.bus.sqlite.store",
    "parley._node.bus.remote.store",
    "parley._node.bus.remote.service",
    "tests.node.bus.crash.actors",
    "tests.node.bus.crash.load",
)
PUBLISHERS: Final = 3
# The pause between two events of a publisher, and before a retry, in seconds.
PAUSE: Final = 0.002
AGAIN: Final = 0.02
RECLAIM_AFTER: Final = 0.6
# More attempts than an event can be killed, so that it doesn't become a dead letter.
MAX_ATTEMPTS: Final = 50

Ended = Callable[[], Awaitable[object]]


class Line(NamedTuple):
    """A line of the file: the publisher, its event number, its ID, and the attempt if processed."""

    publisher: int
    number: int
    id: str
    attempt: int

    @property
    def event(self) -> tuple[int, int]:
        return self.publisher, self.number


def read_lines(path: Path) -> list[Line]:
    """Return the lines that were written, up to the last complete line."""
    lines = []
    if path.exists():
        whole = path.read_text().rpartition("\n")[0]
        for line in whole.splitlines():
            publisher, number, id, attempt = line.split()
            lines.append(Line(int(publisher), int(number), id, int(attempt)))
    return lines


class Notes:
    """A file to which lines are appended, each in one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, line: Line) -> None:
        os.write(self._file, f"{' '.join(map(str, line))}\n".encode())


def identity_of(role: dict[str, Any]) -> Identity:
    return Identity.from_keys([SIGNING["ed25519"].load(bytes.fromhex(role["key"]))])


def new_node(role: dict[str, Any]) -> Node:
    # The other process was killed, so its session will not resume.
    config = NodeConfig(algorithms={"kex": ("x25519",)}, resume=0.0)
    return Node(identity_of(role), config=config, trust=AnyPeer())


@asynccontextmanager
async def bus_of(role: dict[str, Any]) -> AsyncIterator[tuple[Bus, Ended]]:
    """Yield the bus at the address of a store or node, and a function that waits for its end."""
    config = BusConfig(consumer=role["consumer"], timeout=2.0)
    if "node" not in role:
        async with open_bus(role["bus"], config) as bus:
            yield bus, anyio.sleep_forever
        return
    async with new_node(role) as node:
        peer = await node.connect(role["node"], trust=AnyPeer())
        yield peer.bus(config), peer.closed


async def again_and_again(
    role: dict[str, Any], use: Callable[[Bus, Ended], Awaitable[None]]
) -> None:
    """Use the bus; start again when it ends or fails."""
    while True:
        try:
            async with bus_of(role) as (bus, ended):
                await use(bus, ended)
        except* (BusError, ParleyError, OSError):
            pass  # The other process was killed, or has not started yet.
        await anyio.sleep(AGAIN)


async def publish(role: dict[str, Any]) -> None:
    """Publish in several tasks, each with its own count."""
    path = Path(role["directory"], "published")
    last = {line.publisher: line.number for line in read_lines(path)}
    notes = Notes(path)

    async def one(bus: Bus, publisher: int) -> None:
        while True:
            number = last.get(publisher, 0) + 1
            data = {"publisher": publisher, "number": number}
            key = f"{publisher}-{number}"
            id = await bus.publish(STREAM, data, idempotency_key=key, timeout=5.0)
            notes.write(Line(publisher, number, id, 0))
            last[publisher] = number
            await anyio.sleep(PAUSE)

    async def use(bus: Bus, ended: Ended) -> None:
        async with anyio.create_task_group() as tasks:
            for publisher in range(PUBLISHERS):
                tasks.start_soon(one, bus, publisher)

    await again_and_again(role, use)


async def consume(role: dict[str, Any]) -> None:
    """Process events with a loop or a handler."""
    notes = Notes(Path(role["directory"], "processed"))
    max_attempts = role.get("max_attempts", MAX_ATTEMPTS)

    async def process(event: BusEvent) -> None:
        data = event.data
        if data["number"] == role.get("poison"):
            os.kill(os.getpid(), signal.SIGKILL)
        notes.write(Line(data["publisher"], data["number"], event.id, event.attempt))

    async def use(bus: Bus, ended: Ended) -> None:
        if role["handler"]:
            bus.handler(
                STREAM,
                group=GROUP,
                concurrency=3,
                max_attempts=max_attempts,
                reclaim_after=RECLAIM_AFTER,
            )(process)
            await ended()
            return
        async with bus.consume(
            STREAM, group=GROUP, max_attempts=max_attempts, reclaim_after=RECLAIM_AFTER
        ) as events:
            async for event in events:
                await process(event)

    await again_and_again(role, use)


async def both(role: dict[str, Any]) -> None:
    """Publish and consume in one process."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish, role)
        tasks.start_soon(consume, role)


async def offer(role: dict[str, Any]) -> None:
    """Run a node that offers its bus to all peers."""
    async with new_node(role) as node:
        node.bus(role["bus"], allow=lambda request: True)
        await node.listen(role["listen"])
        await anyio.sleep_forever()


ROLES: Final = {"publish": publish, "consume": consume, "both": both, "offer": offer}
