"""Interceptors: log calls, limit each peer, and trace a request across two nodes.

A guest orders at a counter, which calls the kitchen. Subscribers of the kitchen's topic receive its
current state first.

Run it with `uv run python examples/20_interceptors.py`.
"""

from collections import Counter
from typing import Any

import anyio

from parley import Call, CallRefused, Identity, Node, NodeId, ResultCode
from parley.interceptors import Intercepted, Proceed, current_request_id

# Orders per peer. A real limit would be a rate.
ORDERS = 2


async def log(one: Intercepted, proceed: Proceed) -> Any:
    """Print each call and its result."""
    outcome = "refused"
    try:
        answer = await proceed(one)
        outcome = f"answered {answer!r}"
        return answer
    finally:
        request = current_request_id() or "new"
        print(f"{one.kind} {one.way} {one.name!r}, request {request}: {outcome}")


class Limit:
    """Limit the number of orders of each peer."""

    def __init__(self) -> None:
        self.orders: Counter[NodeId | None] = Counter()

    async def __call__(self, one: Intercepted, proceed: Proceed) -> Any:
        if self.orders[one.peer.node_id] == ORDERS:
            raise CallRefused(ResultCode.OVERLOADED, "come again tomorrow")
        self.orders[one.peer.node_id] += 1
        return await proceed(one)


async def main() -> None:
    async with (
        Node(Identity.create()) as guest,
        Node(Identity.create()) as counter,
        Node(Identity.create()) as kitchen,
    ):
        for node in (guest, counter, kitchen):
            node.propagate()
        counter.intercept("call")(
            log
        )  # The first interceptor is the outermost, so it also logs calls that the limit refuses.
        counter.intercept("call")(Limit())
        kitchen.intercept("call")(log)

        stock = {"tea": 5}
        changes = kitchen.topic("stock", state=lambda: stock)
        to_kitchen = await counter.connect(await kitchen.listen("memory://kitchen"))
        to_counter = await guest.connect(await counter.listen("memory://counter"))

        @kitchen.on_call("make")
        async def make(call: Call[Any]) -> str:
            stock[call.data] -= 1
            await changes.publish({call.data: stock[call.data]})
            return f"a cup of {call.data}"

        @counter.on_call("order")
        async def order(call: Call) -> Any:
            return await to_kitchen.call("make", call.data)

        await to_counter.call("order", "tea", headers={"request-id": "order-1"})
        async with await kitchen.local() as me, me.subscribe("stock") as sub:
            print("initial state:", sub.data)
            await to_counter.call("order", "tea", headers={"request-id": "order-2"})
            print("change:", await anext(sub))
        try:
            await to_counter.call("order", "tea", headers={"request-id": "order-3"})
        except CallRefused as refused:
            print("the guest was refused:", refused.data)


if __name__ == "__main__":
    anyio.run(main)
