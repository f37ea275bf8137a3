"""A program that speaks SimProto and nothing else reads a topic of a node far away: by a
gateway near it, which has the topic over an encrypted link.

    SimProto client -- in the clear, this machine --> node A == encrypted ==> node B, topic

Three processes. Run it with `uv run python examples/10_simproto_gateway.py`.
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
    """Node B: a topic, and a call that has something published on it."""
    async with Node(Identity.create()) as node:
        prices = node.topic("prices")

        @node.on_call("open")
        async def open_shop(call: Call) -> str:
            for price in (2, 3, 5):
                await prices.publish({"tea": price})
            return "the shop is open"

        print(await node.listen("tcp://127.0.0.1:0"), flush=True)
        await to_thread.run_sync(sys.stdin.read)  # until whoever started us hangs up


async def gateway(address: str) -> None:
    """Node A: B's topic under the same name here, and both for clients of SimProto. What
    is neither bytes nor text travels as JSON there."""
    async with (
        Node(Identity.create()) as node,
        Forward(node, "prices", address) as prices,
        SimProtoGateway(node, values="json") as simproto,
    ):

        @node.on_call("open")
        async def open_shop(call: Call) -> object:
            assert prices.peer is not None
            return await prices.peer.call("open")  # handlers may ask others

        await prices.linked()
        print(await simproto.listen("tcp://127.0.0.1:0"), flush=True)
        await to_thread.run_sync(sys.stdin.read)


@asynccontextmanager
async def started(*role: str) -> AsyncIterator[str]:
    """Another process; gives what it listens on. It ends when we hang up."""
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
        # Any SimProto client would do: this one needs no node and no key.
        SimProtoClient(near) as client,
        client.subscribe("prices") as prices,
    ):
        print("called:", await client.call("open"))
        async for note in prices:
            print("a note:", note)
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
