"""A node in a process of its own that offers its bus to whoever connects.

It ends with the `with` that started it. `offering_node` is this side of it, `serve` the
other.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks.child import say
from benchmarks.process import LineProcess


@contextmanager
def offering_node(file: Path) -> Iterator[tuple[int, str]]:
    """The process, and the node's address with its id. The bus is in `file`."""
    with LineProcess([sys.executable, "-m", "benchmarks.bus.node_child", str(file)]) as child:
        yield child.pid, child.hear()["address"]


async def serve(file: str) -> None:
    """Offer the bus until standard input ends."""
    from node.trust import policies as trust
    from parley import Identity, Node

    async with Node(Identity.create(), trust=trust.AnyPeer()) as node:
        node.bus(f"sqlite:///{file}", allow=lambda request: True)
        say({"address": await node.listen("tcp://127.0.0.1:0")})
        await anyio.to_thread.run_sync(sys.stdin.readline)


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1], backend_options={"use_uvloop": True})
