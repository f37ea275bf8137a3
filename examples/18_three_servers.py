"""Federate three servers of different organisations, and call a node through them.

Ann has an account at the western server and Ben at the eastern one. The server in the middle relays
their traffic, but can neither read nor change it.

Run it with `uv run python examples/18_three_servers.py`.
"""

from contextlib import AsyncExitStack

import anyio

from parley import Call, Identity, Node
from parley.errors import CallRefused
from parley.federation import Federation
from parley.settings import FederationSettings

WEST, MIDDLE, EAST = Identity.create(), Identity.create(), Identity.create()
ANN, BEN = (
    Identity.create(),
    Identity.create(),
)  # ann's account is at the western server, ben's at the eastern one
NAMES = {
    str(identity.node_id): name
    for name, identity in (
        ("west", WEST),
        ("middle", MIDDLE),
        ("east", EAST),
        ("ann", ANN),
        ("ben", BEN),
    )
}


async def main() -> None:
    async with AsyncExitStack() as stack:
        middle = await stack.enter_async_context(Node(MIDDLE))
        link = await middle.listen("tcp://127.0.0.1:0")
        # The server in the middle accepts links from its members and relays tunnels between them.
        ends = (str(WEST.node_id), str(EAST.node_id))
        in_the_middle = FederationSettings(members=ends, carry=ends)
        await stack.enter_async_context(Federation(middle, in_the_middle))

        homes, federations = [], []
        for identity, other, account in ((WEST, EAST, ANN), (EAST, WEST, BEN)):
            node = await stack.enter_async_context(Node(identity))
            homes.append(await node.listen("tcp://127.0.0.1:0"))
            settings = FederationSettings(
                links=(link,),
                members=(str(other.node_id),),
                accounts=(str(account.node_id),),
            )
            federations.append(await stack.enter_async_context(Federation(node, settings)))
        await federations[0].ready(EAST.node_id, timeout=10)

        ann = await stack.enter_async_context(Node(ANN))
        ben = await stack.enter_async_context(Node(BEN))

        @ben.on_call(
            "shop.price", allow=[ANN.node_id]
        )  # authorises the caller's node ID, whatever path the call takes
        async def price(call: Call) -> str:
            path = " -> ".join(NAMES[str(node_id)] for node_id in call.peer.path)
            print(f"ben: called by {NAMES[str(call.peer.node_id)]}, path {path}")
            return f"{call.data!r} costs 3"

        @ben.on_call("till.open")
        async def open_till(call: Call) -> str:
            return "open"

        async with (
            ann.home(homes[0]) as west,
            ben.home(homes[1], exports=["shop.*"]) as east,
        ):
            await east.ready(timeout=5)
            async with await west.reach(EAST.node_id, BEN.node_id) as peer:
                print("ann:", await peer.call("shop.price", "tea"))
                try:
                    await peer.call("till.open")
                except CallRefused as error:
                    print("ann calls a name that is not exported:", error)


if __name__ == "__main__":
    anyio.run(main)
