"""Connect a program that only supports SimProto to a remote node, through a local gateway.

    SimProto client -- unencrypted, on this machine --> node A == encrypted ==> node B, topic

The gateway, node A, forwards a topic of node B over an encrypted link. The example runs three
processes.

Run it with `uv run python examples/10_simproto_gateway.py`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import PIPE

import anyio
from anyio import to_thread

from parley import Call, Forward, Identity, Node
from parley.dialects import SimProtoClient, SimProtoGateway


async def publisher() -> None:
    """Run node B: a topic, and a call that publishes on it."""
    async with Node(Identity.create()) as node:
        prices = node.topic("prices")

        @node.on_call("open")
        async def open_shop(call: Call) -> str:
            for price in (2, 3, 5):
                await prices.publish({"tea": price})
            return "the shop is open"

        print(await node.listen("tcp://127.0.0.1:0"), flush=True)
        await to_thread.run_sync(sys.stdin.read)  # runs until the parent process closes its end


async def gateway(address: str) -> None:
    """Run node A: a gateway that offers B's topic and call to SimProto clients.

    SimProto carries only bytes and text, so other values are converted to JSON.
    """
    async with (
        Node(Identity.create()) as node,
        Forward(node, "prices", address) as prices,
        SimProtoGateway(node, values="json") as simproto,
    ):

        @node.on_call("open")
        async def open_shop(call: Call) -> object:
            assert prices.peer is not None
            return await prices.peer.call("open")  # a handler can call other nodes

        await prices.linked()
        print(await simproto.listen("tcp://127.0.0.1:0"), flush=True)
        await to_thread.run_sync(sys.stdin.read)


@asynccontextmanager
async def started(*role: str) -> AsyncIterator[str]:
    """Run this file as another process and return the address that it prints."""
    command = [sys.executable, __file__, *role]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None) as process:
        assert process.stdout is not None
        printed = b""
        while not printed.endswith(b"\n"):
            printed += await process.stdout.receive()
        yield printed.decode().strip()


async def main() -> None:
    async with (
        started("publisher") as far,
        started("gateway", far) as near,
        # This client needs no node and no key. Any other SimProto client would work, too.
        SimProtoClient(near) as client,
        client.subscribe("prices") as prices,
    ):
        print("answer:", await client.call("open"))
        async for note in prices:
            print("note:", note)
            if note == b'{"tea":5}':
                break


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["publisher"]:
            anyio.run(publisher)
        case ["gateway", address]:
            anyio.run(gateway, address)
        case _:
            anyio.run(main)
