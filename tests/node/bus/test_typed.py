"""Dataclasses and other models as the data of events."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import anyio
import msgspec
import pytest

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.event import BusEvent
from parley._node.errors import ConfigError, MalformedDataError
from tests.node.bus.buses import GROUP, NAME, a_bus
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


@dataclass
class Item:
    name: str
    price: int


@dataclass
class Order:
    items: list[Item]
    day: date
    table: int = 1


class Struct(msgspec.Struct):
    number: int


ORDER = Order([Item("tea", 3)], date(2026, 1, 31))
PLAIN = {"items": [{"name": "tea", "price": 3}], "day": "2026-01-31", "table": 1}


async def test_models_are_published_and_consumed(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        await bus.publish(NAME, ORDER)
        await bus.publish_many(NAME, [ORDER, PLAIN])
        stored = [event.body async for event in bus.history(NAME)]
        assert [json.loads(body) for body in stored] == [PLAIN] * 3
        async with bus.consume(NAME, GROUP, returns=Order) as events:
            for _ in range(3):
                order: Order = (await anext(events)).data
                assert order == ORDER
        async with bus.consume(NAME, "plain") as events:
            assert (await anext(events)).data == PLAIN


async def test_models_can_be_nested_in_data(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        await bus.publish(NAME, {"order": ORDER, "one": Struct(7)})
        (event,) = [event async for event in bus.history(NAME)]
        assert event.data == {"order": PLAIN, "one": {"number": 7}}


async def test_handler_annotation_sets_the_data_type(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        got: list[Any] = []

        @bus.handler(NAME, GROUP)
        async def handle(event: BusEvent[Order]) -> None:
            got.append(event.data)

        @bus.handler(NAME, "plain")
        async def plain(event: BusEvent) -> None:
            got.append(event.data)

        bus.begin()
        await bus.publish(NAME, ORDER)
        await eventually(lambda: len(got) == 2)
        assert ORDER in got
        assert PLAIN in got


@dataclass
class Odd:
    n: int

    def __post_init__(self) -> None:
        if self.n:
            raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("data", "returns", "why"),
    [
        (
            {"items": [{"name": "tea", "price": "3"}], "day": "2026-01-31"},
            Order,
            "$.items[0].price",
        ),
        ({"n": 1}, Odd, "a bug"),
    ],
)
async def test_data_that_does_not_fit_becomes_a_dead_letter(
    anyio_backend: str, data: dict[str, Any], returns: type[Any], why: str
) -> None:
    async with a_bus() as (bus, _):
        await bus.publish(NAME, data)
        good = {"n": 0} if returns is Odd else PLAIN
        await bus.publish(NAME, good)
        with anyio.fail_after(10):
            async with bus.consume(NAME, GROUP, returns=returns) as events:
                event = await anext(events)
                assert isinstance(event.data, returns)
        (letter,) = await bus.dead_letters(NAME)
        assert why in letter.history[0].error
        assert letter.data == data


async def test_history_reads_models(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        await bus.publish_many(NAME, [ORDER, {"other": 1}, ORDER])
        with anyio.fail_after(10):
            first, other, last = [event async for event in bus.history(NAME, returns=Order)]
        orders: list[Order] = [first.data, last.data]
        assert orders == [ORDER, ORDER]
        with pytest.raises(MalformedDataError, match="items"):
            _ = other.data
        assert json.loads(other.body) == {"other": 1}


async def test_value_without_encoding_is_not_published(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        for data in (Struct(7).number, date(2026, 1, 31), {"b": b"bytes"}, {"o": object()}):
            with pytest.raises(InvalidEventError):
                await bus.publish(NAME, data)  # type: ignore[arg-type] # some are not data
        assert await bus.streams() == []


async def test_invalid_data_types(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        with pytest.raises(ConfigError, match="cannot check data of type"):
            bus.consume(NAME, GROUP, returns=type(lambda: None))
        with pytest.raises(ConfigError, match="cannot check data of type"):
            bus.history(NAME, returns=type(lambda: None))
        with pytest.raises(ConfigError, match="cannot resolve the type hints"):

            @bus.handler(NAME, GROUP)
            async def handle(event: "BusEvent[Missing]") -> None:  # type: ignore[name-defined] # noqa: F821 - the name must be missing
                """Never run."""
