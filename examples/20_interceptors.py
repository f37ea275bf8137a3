"""Interceptors on two nodes: a log, a limit for each peer, and one request id over both; and a
topic whose subscribers are told its state first.

Run it with `uv run python examples/20_interceptors.py`.
"""

from collections import Counter
from typing import Any

import anyio

from parley import Call, CallRefused, Identity, Node, NodeId, ResultCode
from parley.interceptors import Intercepted, Proceed, current_request_id

# Of each peer; a real limit would be a rate.
ORDERS = 2


async def log(one: Intercepted, proceed: Proceed) -> Any:
    """Say what passed, and what became of it."""
    said = "refused"
    try:
        answer = await proceed(one)
        said = f"answered {answer!r}"
        return answer
    finally:
        print(f"{one.kind} {one.way} {one.name!r}, request {current_request_id() or 'new'}: {said}")


class Limit:
    """So many orders for each peer."""

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
        counter.intercept("call")(log)  # the first is the outermost: it sees what the limit refuses
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
            print("the kitchen itself is told", sub.data)
            await to_counter.call("order", "tea", headers={"request-id": "order-2"})
            print("and then", await anext(sub))
        try:
            await to_counter.call("order", "tea", headers={"request-id": "order-3"})
        except CallRefused as refused:
            print("the guest is told:", refused.data)


if __name__ == "__main__":
    anyio.run(main)
