"""Three servers of different people in a row, and a call from one end to the other: the server in the
middle carries it and cannot read it.

Run it with `uv run python examples/18_three_servers.py`.
"""

from contextlib import AsyncExitStack

import anyio

from parley import Call, Identity, Node
from parley.errors import CallRefused
from parley.federation import Federation
from parley.settings import FederationSettings

WEST, MIDDLE, EAST = Identity.create(), Identity.create(), Identity.create()
ANN, BEN = Identity.create(), Identity.create()  # Ann has an account in the west, Ben in the east
NAMES = {
    each.node_id: name
    for name, each in {
        "west": WEST, "middle": MIDDLE, "east": EAST, "ann": ANN, "ben": BEN
    }.items()
}  # fmt: skip


async def main() -> None:
    async with AsyncExitStack() as stack:
        middle = await stack.enter_async_context(Node(MIDDLE))
        address = await middle.listen("tcp://127.0.0.1:0")
        # The middle names whom it lets link, and whose tunnels go on through it. It exports nothing.
        ends = (str(WEST.node_id), str(EAST.node_id))
        federation = Federation(middle, FederationSettings(members=ends, carry=ends))
        await stack.enter_async_context(federation)

        homes, federations = {}, {}
        for identity, other, account in ((WEST, EAST, ANN), (EAST, WEST, BEN)):
            node = await stack.enter_async_context(Node(identity))
            homes[account] = await node.listen("tcp://127.0.0.1:0")
            settings = FederationSettings(
                links=(address,), members=(str(other.node_id),), accounts=(str(account.node_id),)
            )
            federation = await stack.enter_async_context(Federation(node, settings))
            federations[identity] = federation
        while federations[WEST].path(EAST.node_id) is None or not federations[EAST].path(WEST.node_id):
            await anyio.sleep(0.05)

        ben = await stack.enter_async_context(Node(BEN))

        @ben.on_call("shop.price", allow=[ANN.node_id])  # decided by who calls, not by the way
        async def price(call: Call) -> str:
            way = " -> ".join(NAMES[one] for one in call.peer.path)
            print("ben is asked by", NAMES[call.peer.node_id], "over", way)
            return f"{call.data} costs 3"

        @ben.on_call("till.open")
        async def open_till(call: Call) -> str:
            return "open"

        ann = await stack.enter_async_context(Node(ANN))
        async with (
            ben.home(homes[BEN], exports=["shop.*"]) as bens,
            ann.home(homes[ANN]) as anns,
        ):
            await bens.ready(timeout=5)
            async with await anns.reach(EAST.node_id, BEN.node_id) as peer:
                print("ann:", await peer.call("shop.price", "tea"))
                try:
                    await peer.call("till.open")
                except CallRefused as error:
                    print("ann, of what he does not export:", error)


if __name__ == "__main__":
    anyio.run(main)
