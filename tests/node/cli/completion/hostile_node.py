"""A node that offers the calls in a JSON file: pairs of a name and a description.

    python hostile_node.py FILE

It prints its address.
"""

import json
import sys
from pathlib import Path

import anyio

from parley._crypto.identity import Identity
from parley._node.node import Node
from parley._node.remote.requests import Call


async def main(pairs: list[tuple[str, str]]) -> None:
    """Serve until the process is killed."""
    offers = [
        {"kind": kind, "name": name, "doc": text}
        for name, text in pairs
        for kind in ("call", "topic")
    ]
    async with Node(Identity.create()) as node:

        @node.on_call("parley.topics")
        async def topics(call: Call) -> object:
            return {"offers": offers, "more": False}

        print(await node.listen("tcp://127.0.0.1:0"), flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, json.loads(Path(sys.argv[1]).read_text("utf-8")))
