"""What the processes that are killed do: publish, process, offer a bus.

Each notes at once what is done, in one write to a file that is only appended to: an event's id
after `publish` returned, an event processed before it is acknowledged. A process that starts again
goes on from there, and publishes the last event again with its key.
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
# What a stage imports for those who play here, or in `load`.
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
# Between two events of a publisher and before it is tried again, in seconds.
PAUSE: Final = 0.002
AGAIN: Final = 0.02
RECLAIM_AFTER: Final = 0.6
# No event meets as many kills: none of them may be set aside.
MAX_ATTEMPTS: Final = 50

Ended = Callable[[], Awaitable[object]]


class Line(NamedTuple):
    """A line of a file: of which publisher, its how manieth event, the event's id, the attempt
    (of a processed one)."""

    publisher: int
    number: int
    id: str
    attempt: int

    @property
    def event(self) -> tuple[int, int]:
        return self.publisher, self.number


def read_lines(path: Path) -> list[Line]:
    """What was written down, up to the last whole line."""
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
    # Whoever it was talking to was killed: no session of his is to be waited for.
    config = NodeConfig(algorithms={"kex": ("x25519",)}, resume=0.0)
    return Node(identity_of(role), config=config, trust=AnyPeer())


@asynccontextmanager
async def bus_of(role: dict[str, Any]) -> AsyncIterator[tuple[Bus, Ended]]:
    """The bus at an address, be it a store's or a node's, and what waits until it ended."""
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
    """Use the bus; when it ends or fails, from the beginning."""
    while True:
        try:
            async with bus_of(role) as (bus, ended):
                await use(bus, ended)
        except* (BusError, ParleyError, OSError):
            pass  # who it was talking to was killed, or is not there yet
        await anyio.sleep(AGAIN)


async def publish(role: dict[str, Any]) -> None:
    """Several tasks, each with a count of its own."""
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
    """Process, by a loop or by a handler."""
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
    """Publish and consume, in one process."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish, role)
        tasks.start_soon(consume, role)


async def offer(role: dict[str, Any]) -> None:
    """A node that offers its bus to everybody."""
    async with new_node(role) as node:
        node.bus(role["bus"], allow=lambda request: True)
        await node.listen(role["listen"])
        await anyio.sleep_forever()


ROLES: Final = {"publish": publish, "consume": consume, "both": both, "offer": offer}
