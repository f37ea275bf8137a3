"""A link over a server that restarts: calls that wait for it and are run once at most, and a topic
that remembers its notes.

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

# A link that is down is a warning of the log; here the hooks tell.
logging.getLogger("parley.link").setLevel(logging.ERROR)

SHOP = Identity.create()  # a real server reads it from a file: it is the same after each start


class Shop:
    """The server. Each has the identity and the address of the one before it, and nothing else."""

    def __init__(self) -> None:
        self.node = Node(SHOP, config=NodeConfig(drain_timeout=0))  # no time for what it bakes
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
        # The one server that knew has gone. The link does not ask the next one to make it again.
        print(f"{what}: made once or not at all, nobody knows")


async def read(prices: LinkSubscription) -> None:
    note = await anext(prices)
    print(f"price: {note!r}, with all that came before it: {prices.recovered}")


async def lose_the_session(link: Link, shop: Shop) -> None:
    print("the session ends while the shop bakes")
    async with anyio.create_task_group() as orders:
        orders.start_soon(buy, link, "a cake")
        await shop.baking.wait()
        await shop.node.peers[0].close()
        await shop.prices.publish(310)  # nobody is connected
        shop.baked.set()  # what is run once goes on, and is asked for again over the next session


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
        pauses = Backoff(first=0.05)  # seconds before it dials again; half a second unless told
        async with (
            anyio.create_task_group() as servers,
            Node(Identity.create()) as guest,
            guest.link(f"{place}#{SHOP.node_id}", pauses=pauses) as link,  # returns at once
        ):
            link.on_up(lambda peer: print("  up"))
            link.on_down(lambda why: print("  down:", why))
            try:
                await link.ready(timeout=0.1)
            except UnreachableError:
                print("nobody is there yet")

            shop = Shop()
            async with anyio.create_task_group() as orders:
                orders.start_soon(buy, link, "tea")  # waits for the connection
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
