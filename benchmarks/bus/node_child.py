"""A node that offers its bus on TCP: `python -m benchmarks.bus.node_child FILE`.

It writes its address as a line of JSON, and exits when its input ends.
"""

import json
import sys

import anyio
import anyio.to_thread

from parley import Identity, Node


async def main(path: str) -> None:
    """Offer the bus in the file `path` to every peer."""
    async with Node(Identity.create()) as node:
        node.bus(f"sqlite:///{path}", allow=lambda request: True)
        print(json.dumps({"address": await node.listen("tcp://127.0.0.1:0")}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend_options={"use_uvloop": True})
