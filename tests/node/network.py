"""Connected nodes for tests, and checks for leaks.

Everything stops at the end of its `async with`, and waits take at most `PATIENCE`. Nodes use the
fastest key exchange, and don't wait for handlers at the end unless a test sets it.
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
    """Return settings for tests: the fastest key exchange, and sessions that end with their
    transport.
    """
    return tuned(**{"algorithms": FAST, "resume": 0.0, **settings})


def new_node(trust: TrustPolicy | AcceptHook | None = None, **settings: Any) -> Node:
    """Create a node with a new identity."""
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
    """Connect a client and a server over memory, TCP or a Unix socket, both with `clock`."""
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
    """Run a task scope for code that needs no node, and check for leaks."""
    ours = TaskScope("the test")
    backend = await ours.enter()
    try:
        yield backend
    finally:
        await ours.leave()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; raise TimeoutError if it doesn't."""
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.002)


async def settled() -> None:
    """Let all tasks run that can, for some turns of the loop and a millisecond."""
    for _ in range(5):
        await cancel_shielded_checkpoint()
    await anyio.sleep(0.005)


async def started(
    tasks: anyio.abc.TaskGroup, function: Callable[[], Awaitable[object]]
) -> "list[BaseException | object]":
    """Run `function` in a task; its result or error is appended to the list."""
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
    """Return the open sockets and files of the process, by number and target."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # of the listing itself
        if target != "/dev/null":  # the spare one that libuv keeps open
            found.add(f"{entry.name} {target}")
    return found


def living(kind: type) -> int:
    """Return the number of objects of a type."""
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
    """Check that no file, socket, task, Peer or Stream exists that did not exist before.

    There may be fewer, because objects of an earlier test may be collected only now. A thread that
    resolved a name may keep its error for a moment.
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
