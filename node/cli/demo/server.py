"""A server of the federation that the demo shows, in a process of its own.

It does what the lines of its standard input say, one JSON object each, answers each with a line,
and ends with its input, so that it never outlives the story.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final

from anyio import to_thread

from parley._crypto.identity import Identity, NodeId
from parley._node.cli.output import Output
from parley._node.node import Node
from parley._node.server.federation import Federation
from parley._node.settings.federation import FederationSettings
from parley._node.tunnels.tunnel_transport import TunnelWriter

ROOM: Final = "room"
_PATIENCE: Final = 15.0  # seconds
_LEAST_LIE: Final = 128  # bytes: what is shorter may be a Received, which nobody waits for


async def serve_demo() -> None:
    """Be a server until standard input ends."""
    out = Output(as_json=True)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(Node(Identity.create()))
        address = await node.listen("tcp://127.0.0.1:0")
        out.event("ready", node_id=str(node.node_id), addresses=[address])
        federation: Federation | None = None
        async for told in _lines():
            match told:
                case {"join": settings, "writers": writers}:
                    if writers:
                        node.topic(ROOM, keep=1_000, writers=writers)
                    joined = Federation(node, FederationSettings(**_tuples(settings)))
                    federation = await stack.enter_async_context(joined)
                case {"await": servers} if federation is not None:
                    await federation.ready(*map(NodeId.parse, servers), timeout=_PATIENCE)
                case {"write": [host, lines]} if federation is not None:
                    async with await federation.reach(NodeId.parse(host)) as peer:
                        for line in lines:
                            await peer.publish(ROOM, line)
                case "lie":
                    _lie()
            out.event("did")
    out.done()


async def _lines() -> AsyncIterator[Any]:
    while line := await to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True):
        yield json.loads(line)


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }


def _lie() -> None:
    """From now on this process runs changed code: of what passes through, one bit is another."""
    honest = TunnelWriter.write

    def write(self: TunnelWriter, data: bytes, cost: int = 0) -> None:
        if len(data) >= _LEAST_LIE:
            TunnelWriter.write = honest  # type: ignore[method-assign]  # honest again
            data = data[:-1] + bytes((data[-1] ^ 1,))
        honest(self, data, cost)

    TunnelWriter.write = write  # type: ignore[method-assign]  # that is what lying takes
