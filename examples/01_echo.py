"""Call another node: the smallest complete program.

Two nodes run in one process. Bob registers a handler for the call `echo`; Alice connects to Bob and
calls it.

Run it with `uv run python examples/01_echo.py`.
"""

import anyio

from parley import Call, Identity, Node


async def main() -> None:
    async with Node(Identity.create()) as alice, Node(Identity.create()) as bob:

        @bob.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        address = await bob.listen(
            "tcp://127.0.0.1:0"
        )  # The address ends in # and Bob's node ID, so Alice cannot reach an impostor.
        peer = await alice.connect(address)
        print(await peer.call("echo", "hello", timeout=5))


if __name__ == "__main__":
    anyio.run(main)
