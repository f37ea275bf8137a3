"""Two nodes that have met, for tests of what they then say; and what must not be left.

Everything here ends with its `async with`, and nothing waits for longer than
`PATIENCE`. Small key exchange, no drain unless a test asks for it.
"""

import asyncio
import gc
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from parley import Node, NodeConfig, Peer, Stream
from parley._crypto.identity import Identity
from parley._node.testing import ConnectedNodes, FakeClock, connect_nodes
from parley._node.transport.backend import Backend
from parley._node.transport.task_scope import TaskScope
from parley._node.trust.policies import AcceptHook, AnyPeer, TrustPolicy
from tests.node.tuned import tuned

PATIENCE = 10.0
FAST = {"kex": ("x25519",)}


def config(**settings: Any) -> NodeConfig:
    """Settings for tests: the cheap key exchange, and connections that end with their transport,
    unless a test is about resuming."""
    return tuned(**{"algorithms": FAST, "resume": 0.0, **settings})


def new_node(trust: TrustPolicy | AcceptHook | None = None, **settings: Any) -> Node:
    """A node of its own identity."""
    return Node(Identity.create(), config=config(**settings), trust=trust)


@asynccontextmanager
async def meeting(
    *,
    transport: str = "memory",
    client: NodeConfig | None = None,
    server: NodeConfig | None = None,
    clock: FakeClock | None = None,
    patience: float = PATIENCE,
    **both: Any,
) -> AsyncIterator[ConnectedNodes]:
    """A client and a server that have met, over memory, tcp or unix, both on `clock`."""
    ours = Node(Identity.create(), config=client or config(**both), clock=clock)
    theirs = Node(Identity.create(), config=server or config(**both), clock=clock)
    with anyio.fail_after(patience), TemporaryDirectory() as directory:
        async with theirs, ours:
            if transport == "memory":
                peer, back = await connect_nodes(ours, theirs)
            else:
                place = "tcp://127.0.0.1:0"
                if transport == "unix":
                    place = f"unix://{directory}/socket"
                peer = await ours.connect(await theirs.listen(place), trust=AnyPeer())
                await eventually(lambda: bool(theirs.peers))
                back = theirs.peers[0]
            yield ConnectedNodes(ours, theirs, peer, back)


@asynccontextmanager
async def task_scope() -> AsyncIterator[Backend]:
    """A loop for what is no node; nothing of it is left."""
    ours = TaskScope("the test")
    backend = await ours.enter()
    try:
        yield backend
    finally:
        await ours.leave()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; TimeoutError if it never does."""
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what it waits for sets no event
            await anyio.sleep(0.002)


async def settled() -> None:
    """Let everything that can go on do so: some turns of the loop, and a millisecond."""
    for _ in range(5):
        await cancel_shielded_checkpoint()
    await anyio.sleep(0.005)


async def started(
    tasks: anyio.abc.TaskGroup, function: Callable[[], Awaitable[object]]
) -> "list[BaseException | object]":
    """Run `function` in a task; its result, or what it raised, will be in the list."""
    outcome: list[BaseException | object] = []

    async def run() -> None:
        try:
            outcome.append(await function())
        except Exception as error:
            outcome.append(error)

    tasks.start_soon(run)
    await settled()
    return outcome


def open_files() -> set[str]:
    """What the process has open: sockets and files, by number and target."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # the listing's own
        if target != "/dev/null":  # libuv's spare one, kept for ever
            found.add(f"{entry.name} {target}")
    return found


def living(kind: type) -> int:
    """How many objects of a type there are."""
    return _living(kind)[kind]


def other_tasks() -> int:
    """Return the number of asyncio's tasks without the current one; trio's tasks belong to a
    nursery."""
    try:
        return len(asyncio.all_tasks()) - 1
    except RuntimeError:
        return 0


@contextmanager
def nothing_left() -> Iterator[None]:
    """No file, socket or task, and no Peer or Stream, is there that was not before.

    There may be less: what an earlier test let go may be collected only now. A thread that
    resolved a name may hold the error it ended with for a moment longer.
    """
    files, objects = open_files(), _living_objects()
    yield
    for _ in range(20):
        if living(Peer) <= objects["peers"]:
            break
        time.sleep(0.01)
    assert open_files() - files == set()
    more = {kind: count for kind, count in _living_objects().items() if count > objects[kind]}
    assert more == {}


def _living_objects() -> dict[str, int]:
    there_are = _living(Peer, Stream)
    return {"tasks": other_tasks(), "peers": there_are[Peer], "streams": there_are[Stream]}


def _living(*kinds: type) -> Counter[type]:
    gc.collect()
    return Counter(type(thing) for thing in gc.get_objects() if type(thing) in kinds)
