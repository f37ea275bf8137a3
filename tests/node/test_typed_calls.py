"""Tests of typed calls, streamed answers and topics between two nodes."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, assert_type

import anyio
import msgspec
import pydantic
import pytest

from parley import (
    AnswerStream,
    Call,
    CallRefused,
    NamedEvent,
    Namespace,
    Payload,
    Subscription,
    Topic,
    on_event,
)
from parley._lbm.codec import Value
from parley._node.errors import ConfigError, MalformedDataError, StreamedAnswerError
from parley._node.protocol.codes import ResultCode
from parley._node.testing import ConnectedNodes
from tests.node.network import meeting

pytestmark = pytest.mark.anyio


@dataclass
class Item:
    name: str
    price: int


@dataclass
class Order:
    items: list[Item]
    note: bytes = b""


class Receipt(msgspec.Struct):
    total: int
    note: bytes = b""


class Price(pydantic.BaseModel):
    name: str
    cents: int


ORDER = Order([Item("tea", 3), Item("cake", 4)], b"\0\xff")


async def test_a_call_of_a_type_is_answered_with_one(met: ConnectedNodes) -> None:
    @met.server.on_call("order")
    async def order(call: Call[Order]) -> Receipt:
        assert_type(call.data, Order)
        return Receipt(sum(item.price for item in call.data.items), call.data.note)

    receipt = await met.peer.call("order", ORDER, returns=Receipt)
    assert_type(receipt, Receipt)
    assert receipt == Receipt(7, b"\0\xff")
    # The other side need not use types.
    plain = await met.peer.call("order", {"items": [{"name": "tea", "price": 3}]})
    assert_type(plain, Value)
    assert plain == {"total": 3, "note": b""}
    assert await met.peer.call("order", ORDER, returns=dict[str, Any]) == {
        "total": 7,
        "note": b"\0\xff",
    }


async def test_malformed_data_is_answered_with_its_place_and_runs_nothing(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    @met.server.on_call("order")
    async def order(call: Call[Order]) -> None:
        ran.append(call)

    wrong = {"items": [{"name": "tea", "price": 3}] * 2 + [{"name": "cake", "price": "4"}]}
    with caplog.at_level(logging.INFO), pytest.raises(CallRefused) as caught:
        await met.peer.call("order", wrong)
    assert caught.value.code == ResultCode.MALFORMED
    assert caught.value.data == "$.items[2].price: Expected int, got str"
    with pytest.raises(CallRefused) as caught:
        await met.peer.call("order")
    assert caught.value.data == "$: Expected object, got null"
    assert ran == []
    assert caplog.messages == []


async def test_an_answer_of_another_type_is_the_handler_s_failure(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    @met.server.on_call("order")
    async def order(call: Call[Order]) -> Receipt:
        return Receipt("seven")  # type: ignore[arg-type]  # the test

    with pytest.raises(CallRefused) as caught:
        await met.peer.call("order", ORDER)
    assert caught.value.code == ResultCode.HANDLER_FAILED
    assert "seven" not in str(caught.value.data)
    assert "not of type Receipt: $.total: Expected int, got str" in caplog.text


async def test_answer_of_another_type_raises_for_the_caller(met: ConnectedNodes) -> None:
    @met.server.on_call("order")
    async def order(call: Call) -> Value:
        return call.data

    with pytest.raises(MalformedDataError) as caught:
        await met.peer.call("order", {"total": None}, returns=Receipt)
    assert caught.value.place == "$.total"
    assert await met.peer.call("order", {"total": 1}, returns=Receipt | None) == Receipt(1)


async def test_a_handler_in_this_thread_and_one_of_items(met: ConnectedNodes) -> None:
    @met.server.on_call("price")
    def price(call: Call[str]) -> Price:
        return Price(name=call.data, cents=120)

    @met.server.on_call("prices")
    async def prices(call: Call[list[str]]) -> AsyncIterator[Price]:
        for name in call.data:
            yield Price(name=name, cents=len(name))

    assert await met.peer.call("price", "tea", returns=Price) == Price(name="tea", cents=120)
    async with met.peer.call_stream("prices", ["a", "bc"], returns=Price) as answer:
        assert_type(answer, AnswerStream[Price])
        assert [item.cents async for item in answer] == [1, 2]
    async with met.peer.call_stream("prices", ["a"], returns=Receipt) as wrong:
        with pytest.raises(MalformedDataError, match="missing required field total"):
            await anext(wrong)
    with pytest.raises(CallRefused) as caught:
        async with met.peer.call_stream("prices", "abc") as refused:
            await anext(refused)
    assert caught.value.data == "$: Expected array, got str"
    with pytest.raises(StreamedAnswerError):
        await met.peer.call("prices", ["a"], returns=list[Price])


async def test_a_handler_calls_back_with_types(met: ConnectedNodes) -> None:
    @met.client.on_call("price")
    async def price(call: Call[str]) -> Price:
        return Price(name=call.data, cents=120)

    @met.server.on_call("total")
    async def total(call: Call[list[str]]) -> int:
        prices = [await call.peer.call("price", name, returns=Price) for name in call.data]
        return sum(price.cents for price in prices)

    assert await met.peer.call("total", ["tea", "cake"], returns=int) == 240


async def test_an_item_of_another_type_is_the_handler_s_failure(met: ConnectedNodes) -> None:
    @met.server.on_call("prices")
    async def prices(call: Call) -> AsyncIterator[Price]:
        yield Price(name="a", cents=1)
        yield {"name": "b"}  # type: ignore[misc]  # the test

    async with met.peer.call_stream("prices", returns=Price) as answer:
        assert await anext(answer) == Price(name="a", cents=1)
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert caught.value.code == ResultCode.HANDLER_FAILED


async def test_call_with_once_checks_types(anyio_backend: str) -> None:
    async with meeting() as met:
        ran = []

        @met.server.on_call("order", once=True)
        async def order(call: Call[Order]) -> Receipt:
            ran.append(call.data)
            return Receipt(7)

        peer = await met.client.connect(await met.server.listen("tcp://127.0.0.1:0"))
        key = bytes(range(16))
        with pytest.raises(CallRefused) as caught:
            await peer.call("order", 5, once=key)
        assert caught.value.code == ResultCode.MALFORMED
        # Malformed data didn't run the handler, so the key is still unused.
        for _ in range(2):
            assert await peer.call("order", ORDER, once=key, returns=Receipt) == Receipt(7)
        assert ran == [ORDER]


async def test_named_events_of_a_type(met: ConnectedNodes) -> None:
    @met.server.on("arrived")
    async def arrived(event: NamedEvent[Item]) -> Receipt:
        assert_type(event.data, Item)
        return Receipt(event.data.price)

    @met.server.on("plain")
    async def plain(event: NamedEvent) -> Payload:
        return event.payload

    reply = await met.peer.emit("arrived", {"name": "tea", "price": 3}).reply()
    assert reply.data == {"total": 3, "note": b""}
    in_json = met.peer.emit("arrived", {"name": "tea", "price": 4}, format="json")
    assert (await in_json.reply()).data == {"total": 4, "note": b""}
    for wrong, told in (
        ({"name": "tea", "price": "3"}, "$.price: Expected int, got str"),
        (Payload(b"{", 3), "$: 1 bytes are not of format 3"),
    ):
        with pytest.raises(CallRefused) as caught:
            await met.peer.emit("arrived", wrong).reply()
        assert (caught.value.code, caught.value.data) == (ResultCode.MALFORMED, told)
    assert (await met.peer.emit("plain", 5).reply()).data == 5


async def test_a_namespace_with_a_wrong_hint_registers_nothing(met: ConnectedNodes) -> None:
    class Doors(Namespace):
        name = "doors"

        @on_event("a")
        async def a(self, event: NamedEvent[Item]) -> None:
            return None

        @on_event("b")
        async def b(self, event: NamedEvent[AnswerStream]) -> None:
            return None

    with pytest.raises(ConfigError, match="AnswerStream"):
        met.server.add_namespace(Doors())
    assert met.server.handlers.find_event("doors", "a") is None


async def test_a_topic_of_a_type(met: ConnectedNodes) -> None:
    prices = met.server.topic("prices", Price)
    assert_type(prices, Topic[Price])
    tapped: list[Any] = []
    prices.tap(lambda data, headers: tapped.append(data))
    async with met.peer.subscribe("prices", returns=Price) as sub:
        assert_type(sub, Subscription[Price])
        await prices.publish(Price(name="tea", cents=120))
        with pytest.raises(TypeError, match="not of type Price"):
            await prices.publish({"name": "tea"})  # type: ignore[arg-type]  # the test
        await prices.publish(Price(name="cake", cents=300))
        prices.close()
        assert [note.cents async for note in sub] == [120, 300]
    assert tapped == [{"name": "tea", "cents": 120}, {"name": "cake", "cents": 300}]


async def test_a_union_is_a_type_as_well(met: ConnectedNodes) -> None:
    @met.server.on_call("half")
    async def half(call: Call[None]) -> AsyncIterator[Price | None]:
        yield Price(name="tea", cents=60)
        yield None

    async with met.peer.call_stream("half", returns=Price | None) as items:
        assert [item and item.cents async for item in items] == [60, None]
    prices = met.server.topic("maybe", Price | None)
    async with met.peer.subscribe("maybe", returns=Price | None) as sub:
        await prices.publish(None)
        assert await anext(sub) is None
    plain = met.peer.subscribe("maybe")
    assert_type(plain, Subscription)


async def test_note_of_another_type_raises_and_the_next_is_read(met: ConnectedNodes) -> None:
    numbers = met.server.topic("numbers")
    for batches in (False, True):
        async with met.peer.subscribe("numbers", returns=int) as sub:
            for note in (1, 2, "three", 4):
                await numbers.publish(note)
            numbers.close()
            if batches:
                assert await sub.next_batch() == [1, 2]
                with pytest.raises(MalformedDataError, match=r"^\$: Expected int, got str$"):
                    await sub.next_batch()
            else:
                assert [await anext(sub), await anext(sub)] == [1, 2]
                with pytest.raises(MalformedDataError):
                    await anext(sub)
            assert [note async for note in sub] == [4]


async def test_a_note_at_which_a_model_fails_is_read_once(met: ConnectedNodes) -> None:
    @dataclass
    class Share:
        of: int

        def __post_init__(self) -> None:
            self.each = 100 // self.of

    shares = met.server.topic("shares")
    async with met.peer.subscribe("shares", returns=Share) as sub:
        for of in (1, 0, 4):
            await shares.publish({"of": of})
        shares.close()
        assert await sub.next_batch() == [Share(1)]
        with pytest.raises(ZeroDivisionError):
            await sub.next_batch()
        assert await sub.next_batch() == [Share(4)]
        assert await sub.next_batch() == []


async def test_models_are_sent_without_a_type_for_the_answer(met: ConnectedNodes) -> None:
    @met.server.on_call("echo")
    async def echo(call: Call) -> Value:
        return call.data

    asked: list[Value] = []
    met.server.topic("prices").on_subscribe(lambda request: asked.append(request.data))
    assert await met.peer.call("echo", [Item("tea", 3)]) == [{"name": "tea", "price": 3}]
    async with met.peer.call_stream("echo", Price(name="tea", cents=1)) as answer:
        assert [item async for item in answer] == []
        assert answer.result == {"name": "tea", "cents": 1}
    async with met.peer.subscribe("prices", Receipt(1)):
        assert asked == [{"total": 1, "note": b""}]


async def test_two_handlers_of_types_at_once(met: ConnectedNodes) -> None:
    @met.server.on_call("double", concurrency=1)
    async def double(call: Call[int]) -> int:
        return 2 * call.data

    async with anyio.create_task_group() as group:

        async def ask(number: int) -> None:
            assert await met.peer.call("double", number, returns=int) == 2 * number

        for number in range(20):
            group.start_soon(ask, number)
        with pytest.raises(CallRefused):
            await met.peer.call("double", "a")
