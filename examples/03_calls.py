"""Six kinds of calls: answered, refused, timed out, streamed, limited and restricted.

A café offers calls. A guest and the keeper of the café use them.

Run it with `uv run python examples/03_calls.py`.
"""

from collections.abc import AsyncIterator

import anyio

from parley import Call, CallRefused, CallTimeout, Identity, Node, NodeId, Peer

SOLD_OUT = 64  # Applications choose refusal codes from 64 on; Parley defines the lower ones.


class Cafe:
    """The calls that the café's node offers."""

    def __init__(self, node: Node, keeper: NodeId) -> None:
        self.cancelled = anyio.Event()
        self.baking = self.most_baking = 0
        # Authorisation is based on node IDs, which peers prove. A role is a name for some of them.
        node.roles.assign(keeper, "keeper")
        node.on_call("order")(self.order)
        node.on_call("wait")(self.wait)
        node.on_call("menu")(self.menu)
        node.on_call("bake", concurrency=2)(self.bake)
        # This rule also applies to handlers for `till.` names that are registered later.
        node.on_call("till.*", allow="keeper")(self.till)

    async def order(self, call: Call) -> str:
        if call.data != "tea":
            raise CallRefused(
                SOLD_OUT, {"left": ["tea"]}
            )  # the caller receives the code and the data
        return "a cup of tea"

    async def wait(self, call: Call) -> None:
        try:
            await anyio.sleep(60)
        finally:  # The handler is cancelled at the caller's deadline, which is sent with the call.
            self.cancelled.set()

    async def menu(self, call: Call) -> AsyncIterator[str]:
        for item in ("tea", "cake", "water"):
            yield item  # waits while the caller is not reading

    async def bake(self, call: Call) -> None:
        self.baking += 1
        self.most_baking = max(self.baking, self.most_baking)
        await anyio.sleep(0.01)
        self.baking -= 1

    async def till(self, call: Call) -> str:
        return f"{call.topic}: 12.50"


async def visit(cafe: Cafe, guest: Peer, keeper: Peer) -> None:
    print("order tea:", await guest.call("order", "tea"))
    try:
        await guest.call("order", "cake")
    except CallRefused as refused:
        print(f"order cake: refused with code {refused.code} and {refused.data}")

    try:
        await guest.call("wait", timeout=0.1)
    except CallTimeout:  # CallTimeout is also a TimeoutError
        await cafe.cancelled.wait()
        print("wait: timed out, and the handler was cancelled")

    async with guest.call_stream("menu") as items:  # leaving the block early cancels the call
        async for item in items:
            print("menu:", item)

    async with anyio.create_task_group() as oven:
        for _ in range(6):
            oven.start_soon(guest.call, "bake")
    print(f"bake: 6 calls, {cafe.most_baking} at a time")

    print("keeper calls", await keeper.call("till.today"))
    try:
        await guest.call("till.today")
    except CallRefused as refused:
        print("guest calls till.today:", refused)


async def main() -> None:
    async with (
        Node(Identity.create()) as cafe,
        Node(Identity.create()) as guest,
        Node(Identity.create()) as keeper,
    ):
        offer = Cafe(cafe, keeper.node_id)
        address = await cafe.listen("tcp://127.0.0.1:0")
        await visit(offer, await guest.connect(address), await keeper.connect(address))


if __name__ == "__main__":
    anyio.run(main)
