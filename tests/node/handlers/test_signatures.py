"""Tests of handlers with type hints: validated and ignored ones."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from parley._lbm.codec import Encodable, Value
from parley._node.errors import ConfigError
from parley._node.handlers.signatures import checked
from parley._node.remote.requests import Call
from tests.sweep import sweep

if TYPE_CHECKING:
    from decimal import Decimal as Absent


@dataclass
class Order:
    item: str


class Size(IntEnum):
    SMALL = 1


T = TypeVar("T")


async def bare(call):  # type: ignore[no-untyped-def]  # as in a program without hints
    return call.data


async def plain(call: Call) -> dict[str, int | list[bytes]] | None:
    return None


async def any_value(call: Call[Value]) -> Encodable:
    return call.data


async def any_at_all(call: Call[Any]) -> Any:
    return call.data


async def of_ours(call: Call) -> Size:
    return Size.SMALL


async def generic(call: Call[T]) -> T:
    return call.data


async def plain_items(call: Call) -> AsyncIterator[str]:
    yield "a"


async def elsewhere(call: "Absent") -> "Absent":
    return call


def in_tasks(call: Call) -> Awaitable[int]:
    raise AssertionError("only its hints are looked at")


def in_a_future(call: Call) -> asyncio.Future[int]:
    raise AssertionError("only its hints are looked at")


def in_some_task(call: Call) -> "asyncio.Task":  # type: ignore[type-arg]  # as somebody may
    raise AssertionError("only its hints are looked at")


UNTOUCHED: list[Callable[..., Any]] = [
    bare, plain, any_value, any_at_all, of_ours, generic, plain_items, elsewhere, in_tasks, print,
    in_a_future, in_some_task,
    lambda call: call.data, Order,
]  # fmt: skip


@sweep("handler", UNTOUCHED)
def test_a_handler_that_names_no_types_is_left_as_it_is(handler: Callable[..., Any]) -> None:
    assert checked(handler, "it", Call) is handler


async def takes(call: Call[Order]) -> str:
    return call.data.item


async def gives(call: Call) -> Order:
    return Order("tea")


def waits(call: Call[Order]) -> Awaitable[Order]:
    raise AssertionError("only its hints are looked at")


async def yields(call: Call) -> AsyncGenerator[list[Order], None]:
    yield [Order("tea")]


async def later(call: "Call[Order]") -> "Order | None":
    return None


def logged(handler: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(handler)
    async def wrapper(*arguments: Any) -> Any:
        return await handler(*arguments)

    return wrapper


async def with_table(table: dict[str, int], call: Call[Order]) -> int:
    return table[call.data.item]


class Shop:
    async def order(self, call: Call[Order]) -> str:
        return call.data.item

    async def __call__(self, call: Call[Order]) -> str:
        return call.data.item


HELD: list[Callable[..., Any]] = [
    takes, gives, waits, yields, later, logged(takes), partial(with_table, {}), Shop().order,
    Shop(),
]  # fmt: skip


@pytest.mark.parametrize("handler", HELD)
def test_a_handler_that_names_types_is_held_to_them(handler: Callable[..., Any]) -> None:
    assert checked(handler, "it", Call) is not handler


def test_hints_that_are_not_there_when_the_program_runs() -> None:
    async def handler(call: "Call[Absent]") -> None:
        return None

    with pytest.raises(ConfigError, match=r"cannot resolve the type hints of it: name 'Absent'"):
        checked(handler, "it", Call)


def test_hints_that_are_no_types_of_data() -> None:
    class Plain:
        pass

    async def handler(call: Call[Plain]) -> None:
        return None

    with pytest.raises(ConfigError, match="it: cannot check data of type Plain"):
        checked(handler, "it", Call)
