"""Two nodes in one process: one answers a call, the other makes it.

Run it with `uv run python examples/01_echo.py`.
"""

import anyio

from parley import Call, Identity, Node


async def main() -> None:
    async with Node(Identity.create()) as alice, Node(Identity.create()) as bob:

        @bob.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        address = await bob.listen("tcp://127.0.0.1:0")  # carries bob's node id: pinned
        peer = await alice.connect(address)
        print(await peer.call("echo", "hello", timeout=5))


if __name__ == "__main__":
    anyio.run(main)
