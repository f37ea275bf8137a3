"""A process that writes a journal under load until it is killed, once for each line of its input.

Each round is a fork of a process that has only imported its modules, so that starting it is cheap.
The facts needed after a kill are in a shared file, because mapped memory outlives its process.
`python -m tests.node.journal.crash_writer`.
"""

import json
import mmap
import os
import stat
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random  # noqa: TID251 - loads, the same for a seed
from struct import Struct
from typing import Any, Final, NamedTuple

import anyio

from parley._node.config import Tuning

# The state of the disk: (inode, size) of the segment synced last; the number of sessions that the
# other side saw, and of events that it received in each.
SYNCED: Final = Struct("<QQ")
COUNT: Final = Struct("<Q")
SESSIONS_AT: Final = SYNCED.size
EVENTS_AT: Final = SESSIONS_AT + COUNT.size
MOST_SESSIONS: Final = 4096
SHARED_SIZE: Final = EVENTS_AT + MOST_SESSIONS * COUNT.size

# Seconds for which it continues unless it is killed.
LONGEST: Final = 20.0
BACKENDS: Final = ("anyio._backends._asyncio", "anyio._backends._trio")
CALLERS: Final = 3
CALLS: Final = 60  # Of each caller in a session.
SIZES: Final = (0, 100, 3_000, 60_000)


class Shared(NamedTuple):
    """The contents of the shared file."""

    synced_inode: int
    synced_size: int
    received: list[int]  # Events in each session that the other side saw begin.

    @classmethod
    def read(cls, path: Path) -> "Shared":
        data = path.read_bytes()
        (count,) = COUNT.unpack_from(data, SESSIONS_AT)
        events = COUNT.iter_unpack(data[EVENTS_AT : EVENTS_AT + count * COUNT.size])
        inode, size = SYNCED.unpack_from(data)
        return cls(inode, size, [number for (number,) in events])


class Syncs:
    """Records exactly what the system confirmed to be on the disk.

    Created before any module that imports these functions by name.
    """

    def __init__(self) -> None:
        self.shared: mmap.mmap | None = None
        for name in ("fsync", "fdatasync"):
            if hasattr(os, name):
                setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            before = os.fstat(descriptor)
            sync(descriptor)
            if self.shared is not None and stat.S_ISREG(before.st_mode):
                SYNCED.pack_into(self.shared, 0, before.st_ino, before.st_size)

        return call


class Counter:
    """The other side's observer of a session, which counts received events in the shared file."""

    def __init__(self, shared: mmap.mmap) -> None:
        self._shared = shared
        self._at = 0
        self._count = 0

    def session_started(self, *_: object) -> None:
        (number,) = COUNT.unpack_from(self._shared, SESSIONS_AT)
        self._at = EVENTS_AT + number * COUNT.size
        COUNT.pack_into(self._shared, SESSIONS_AT, number + 1)

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        if not sent:
            self._count += 1
            COUNT.pack_into(self._shared, self._at, self._count)

    def _nothing(self, *_: object) -> None:
        """Ignore all other reports."""

    epoch_began = stream_opened = direction_ended = rekeyed = _nothing
    session_suspended = session_resumed = session_ended = _nothing


async def journal_under_load(spec: dict[str, Any], shared: mmap.mmap) -> None:
    """Run one round: a node journals the events of another one until it is killed."""
    from parley import Node, NodeConfig
    from parley._crypto.identity import Identity
    from parley._crypto.registry import SIGNING
    from parley._node.journal.journal import Journal
    from parley._node.testing import connect_nodes

    identity = Identity.from_keys([SIGNING["ed25519"].load(bytes.fromhex(spec["key"]))])
    journal = Journal.open(spec["directory"], spec["auditor"], **spec["settings"])
    config = NodeConfig(algorithms={"kex": ("x25519",)}, tuning=Tuning(rekey_allowance=10))
    other = Node(Identity.create(), config=config, observer=lambda: Counter(shared))
    topic = other.topic("news")
    random = Random(spec["seed"])

    @other.on_call("echo")
    async def echo(call: Any) -> object:
        await topic.publish(len(call.data))
        return call.data

    async def call(peer: Any) -> None:
        for number in range(CALLS):
            data = bytes(random.choice(SIZES))
            assert await peer.call("echo", data) == data
            if number % 20 == 7:
                peer.update_keys()

    async def listen(peer: Any) -> None:
        async with peer.subscribe("news") as notes:
            async for _ in notes:
                continue

    async with other, Node(identity, config=config, journal=journal) as node:
        while True:
            peer, _ = await connect_nodes(node, other)
            async with anyio.create_task_group() as listening:
                listening.start_soon(listen, peer)
                async with anyio.create_task_group() as calls:
                    for _ in range(CALLERS):
                        calls.start_soon(call, peer)
                listening.cancel_scope.cancel()
            await peer.close()


async def _round(spec: dict[str, Any], shared: mmap.mmap) -> None:
    with anyio.fail_after(LONGEST):
        await journal_under_load(spec, shared)


def main() -> None:
    """Run a round for each line of JSON; print the child's ID, then its exit status."""
    syncs = Syncs()
    # The modules for a round are imported once, before the forks.
    for name in ("parley._node.journal.journal", "parley._node.testing", "trio", *BACKENDS):
        import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                spec = json.loads(line)
                with Path(spec["shared"]).open("r+b") as file:
                    syncs.shared = mmap.mmap(file.fileno(), SHARED_SIZE)
                anyio.run(_round, spec, syncs.shared, backend=spec["backend"])
            finally:
                sys.stderr.flush()
                os._exit(1)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
