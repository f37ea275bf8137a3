"""Validate calls, answers and notes with type hints.

The types can be dataclasses, msgspec Structs or pydantic models.

Run it with `uv run python examples/17_typed_calls.py`.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

import anyio
from msgspec import Meta, Struct

from parley import Call, CallRefused, Identity, MalformedDataError, Node

# Failures of a handler are logged as errors; this example causes one on purpose.
logging.getLogger("parley.peer").setLevel(logging.CRITICAL)


@dataclass
class Item:
    """An item for sale; `cents` is its price, at least 1."""

    name: str
    cents: Annotated[int, Meta(ge=1)]


@dataclass
class Order:
    """The items that a guest orders."""

    items: list[Item]
    table: int = 1
    notes: dict[str, str] = field(default_factory=dict)


class Receipt(Struct, forbid_unknown_fields=True):
    """The amount to pay."""

    table: int
    cents: int


def offer(shop: Node) -> None:
    """Register the shop's handlers."""

    @shop.on_call("shop.menu")
    async def menu(call: Call[None]) -> AsyncIterator[Item]:
        yield Item("tea", 300)
        yield Item("cake", 420)

    @shop.on_call("shop.order")
    async def order(call: Call[Order]) -> Receipt:
        wanted = call.data  # always an Order: other data is rejected before the handler runs
        return Receipt(wanted.table, sum(item.cents for item in wanted.items))

    @shop.on_call("shop.broken")
    async def broken(call: Call[Order]) -> Receipt:
        return Receipt(call.data.table, "much")  # type: ignore[arg-type] # deliberately wrong


async def main() -> None:
    """Let a guest use the shop."""
    async with Node(Identity.create()) as shop, Node(Identity.create()) as guest:
        offer(shop)
        prices = shop.topic("shop.prices", Item)
        peer = await guest.connect(await shop.listen("tcp://127.0.0.1:0"))

        async with peer.call_stream("shop.menu", returns=Item) as menu:
            items = [item async for item in menu]
        print("menu:", ", ".join(item.name for item in items))
        receipt = await peer.call("shop.order", Order(items, table=7), returns=Receipt)
        print(f"order: table {receipt.table} pays {receipt.cents / 100:.2f}")

        for wrong in (
            {"items": [{"name": "tea", "cents": 300}, {"name": "cake", "cents": "420"}]},
            {"items": [{"name": "tea", "cents": 0}]},
            None,
        ):
            try:
                await peer.call("shop.order", wrong)
            except CallRefused as refused:
                print(f"refused with code {refused.code}: {refused.data}")
        try:
            await peer.call("shop.broken", Order(items))
        except CallRefused as refused:
            print(f"invalid answer of the shop: code {refused.code}")
        try:
            await peer.call("shop.order", Order(items), returns=Item)
        except MalformedDataError as error:
            print("unexpected answer:", error)

        async with peer.subscribe("shop.prices", returns=Item) as notes:
            await prices.publish(Item("tea", 310))
            try:
                await prices.publish(Item("tea", -1))
            except TypeError as error:
                print("not published:", error)
            print("note:", await anext(notes))


anyio.run(main)
