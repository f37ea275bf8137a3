"""Keep a link to a server that restarts.

Calls wait until the link is connected. With `once=True` they run at most once, even if the session
is lost. A topic with a history sends the notes that a subscriber has missed.

Run it with `uv run python examples/16_link_over_restarts.py`.
"""

import logging
from tempfile import TemporaryDirectory

import anyio
from anyio.abc import TaskGroup, TaskStatus

from parley import (
    Backoff,
    Call,
    Identity,
    Link,
    LinkSubscription,
    Node,
    NodeConfig,
    UnreachableError,
)
from parley.errors import OutcomeUnknownError

# Don't show the warnings about lost connections; the callbacks below report them.
logging.getLogger("parley.link").setLevel(logging.ERROR)

SHOP = Identity.create()  # A real server loads a key file, so that its identity stays the same.


class Shop:
    """The server. After a restart, it has the same identity and address, but no other state."""

    def __init__(self) -> None:
        self.node = Node(
            SHOP, config=NodeConfig(drain_timeout=0)
        )  # don't wait for running handlers when it stops
        self.prices = self.node.topic("prices", keep=100)
        self.node.on_call("order", once=True)(self.order)
        self.baking, self.baked = anyio.Event(), anyio.Event()
        self.closing, self.closed = anyio.Event(), anyio.Event()

    async def order(self, call: Call) -> str:
        what = str(call.data)
        print("  the shop makes", what)
        if what != "tea":
            self.baking.set()
            await self.baked.wait()
            self.baking, self.baked = anyio.Event(), anyio.Event()
        return f"one {what}"

    async def run(self, place: str, price: int, *, task_status: TaskStatus[None]) -> None:
        async with self.node:
            await self.prices.publish(price)
            await self.node.listen(place)
            task_status.started()
            await self.closing.wait()
        self.closed.set()


async def buy(link: Link, what: str) -> None:
    try:
        print(f"{what}:", await link.call("order", what, once=True))
    except OutcomeUnknownError:
        # The server that knew the result has stopped. The link doesn't repeat the call at the next
        # one, because it may have been executed.
        print(f"{what}: outcome unknown, made once or not at all")


async def read(prices: LinkSubscription) -> None:
    note = await anext(prices)
    print(f"price: {note!r}, without gaps: {prices.recovered}")


async def lose_the_session(link: Link, shop: Shop) -> None:
    print("the session ends while the shop bakes")
    async with anyio.create_task_group() as orders:
        orders.start_soon(buy, link, "a cake")
        await shop.baking.wait()
        await shop.node.peers[0].close()
        await shop.prices.publish(310)  # the guest is not connected
        shop.baked.set()  # The handler continues; the link gets its result in the next session.


async def restart(link: Link, shop: Shop, place: str, servers: TaskGroup) -> Shop:
    print("the server restarts while the shop bakes")
    async with anyio.create_task_group() as orders:
        orders.start_soon(buy, link, "a pie")
        await shop.baking.wait()
        shop.closing.set()
        await shop.closed.wait()
        shop = Shop()
        await servers.start(shop.run, place, 400)
    return shop


async def main() -> None:
    with TemporaryDirectory() as folder:
        place = f"unix://{folder}/shop"
        pauses = Backoff(
            first=0.05
        )  # seconds before the first reconnection attempt; 0.5 by default
        async with (
            anyio.create_task_group() as servers,
            Node(Identity.create()) as guest,
            guest.link(
                f"{place}#{SHOP.node_id}", pauses=pauses
            ) as link,  # does not wait for the connection
        ):
            link.on_up(lambda peer: print("  up"))
            link.on_down(lambda why: print("  down:", why))
            try:
                await link.ready(timeout=0.1)
            except UnreachableError:
                print("not connected yet")

            shop = Shop()
            async with anyio.create_task_group() as orders:
                orders.start_soon(buy, link, "tea")  # the call waits for the connection
                await servers.start(shop.run, place, 300)

            async with link.subscribe("prices") as prices:
                print("price:", await anext(prices))
                await lose_the_session(link, shop)
                await read(prices)
                shop = await restart(link, shop, place, servers)
                await read(prices)
            await buy(link, "tea")
            print("sessions:", link.sessions)
            shop.closing.set()


if __name__ == "__main__":
    anyio.run(main)
