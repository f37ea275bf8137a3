"""Tests of node/handlers/registry.py: which handler serves a name, and the rules that hold."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley._node.errors import ConfigError, ParleyError
from parley._node.handlers.registry import (
    ConcurrencyLimit,
    Handlers,
    Registry,
    parse_supercategories,
)
from parley._node.protocol.codes import Supercategory
from parley._node.transport.asyncio_backend import AsyncioWaiter
from parley._node.transport.loop import Waiter
from parley._node.transport.trio_backend import TrioWaiter


def registry(*names: str) -> Registry[str]:
    """Return handlers that are their own names, each with its own rule."""
    found: Registry[str] = Registry("topic")
    for name in names:
        found.add(name, name, allow=name.replace("*", "+") + "-role")
    return found


def served_by(handlers: Registry[str], name: str) -> str | None:
    entry = handlers.find(name)
    return None if entry is None else entry.handler


def roles(handlers: Registry[str], name: str) -> set[str]:
    """The roles that the rules for a name speak of, without their ending."""
    entry = handlers.find(name)
    assert entry is not None
    return {role.removesuffix("-role") for rule in entry.rules for role in rule._roles}


def test_a_pattern_without_rule_closes_nothing_and_an_open_name_stays_closed() -> None:
    handlers: Registry[str] = Registry("topic")
    handlers.add("*", "all")
    handlers.add("admin.*", "admin", allow="admin")
    handlers.add("admin.open", "open")
    assert handlers.find("other").rules == ()  # type: ignore[union-attr]  # it is there
    assert roles(handlers, "admin.open") == {"admin"}
    assert roles(handlers, "admin.y") == {"admin"}


NAMES = st.text(alphabet="ab.", max_size=4)


@given(
    st.lists(st.tuples(NAMES, st.booleans()), max_size=12, unique=True), st.lists(NAMES, min_size=1)
)
def test_find_is_what_a_naive_search_finds(
    registered: list[tuple[str, bool]], wanted: list[str]
) -> None:
    names = [name + "*" if is_pattern else name for name, is_pattern in registered]
    handlers = registry(*names)
    patterns = [name for name, is_pattern in registered if is_pattern]
    for name in wanted:
        above = [pattern for pattern in patterns if name.startswith(pattern)]
        if (name, False) in registered:
            expected, rules = name, {name} | {pattern + "+" for pattern in above}
        elif above:
            expected, rules = max(above, key=len) + "*", {pattern + "+" for pattern in above}
        else:
            assert handlers.find(name) is None
            continue
        assert served_by(handlers, name) == expected
        assert roles(handlers, name) == rules


@pytest.mark.parametrize("name", ["x", "x.*", "*"])
def test_one_handler_for_a_name(name: str) -> None:
    handlers = registry(name)
    with pytest.raises(ParleyError, match="cannot register a handler for"):
        handlers.add(name, "another")
    assert served_by(handlers, name) == name


def test_options_that_are_wrong_register_nothing() -> None:
    handlers: Registry[str] = Registry("topic")
    wrongs: list[dict[str, object]] = [
        {"concurrency": 0},
        {"concurrency": -1},
        {"allow": ""},
        {"allow": 5},
        {"allow": [None]},
        {"allow": b"bytes"},
        {"supercategories": []},
        {"supercategories": ["client"]},
        {"answers": [(63, 1)]},
        {"answers": [(64, 0)]},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            handlers.add("x", "x", **wrong)  # type: ignore[arg-type]  # that is the test
    assert handlers.find("x") is None


def test_supercategories() -> None:
    assert parse_supercategories(None) is None
    handlers: Registry[str] = Registry("topic")
    handlers.add("all", "all")
    handlers.add("some", "some", supercategories=[Supercategory.CLIENT_TO_SERVER])
    for one in Supercategory:
        assert handlers.find("all").takes(one)  # type: ignore[union-attr]  # it is there
        takes = handlers.find("some").takes(one)  # type: ignore[union-attr]  # it is there
        assert takes == (one is Supercategory.CLIENT_TO_SERVER)


@pytest.mark.parametrize("name", [5, None, b"x"])
def test_names_are_text(name: Any) -> None:
    with pytest.raises(ConfigError, match="it must be str"):
        Handlers().calls.add(name, "x")


# Slots.


class Noted:
    """A wait that records its end: two that end in one turn may continue in any order."""

    def __init__(self, wait: Waiter, note: Callable[[], None]) -> None:
        self._wait = wait
        self._note = note

    def wake(self) -> None:
        """End the wait."""
        self._note()
        self._wait.wake()

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait.__await__()


def no_waiter() -> Waiter:
    raise AssertionError("a slot is not free")


def waiter(backend: str) -> Waiter:
    """A wait of the running loop."""
    if backend == "trio":
        return TrioWaiter()
    return AsyncioWaiter(loop=asyncio.get_running_loop())


# The fixture is the backend's name, the same for all examples.
@pytest.mark.anyio
@settings(suppress_health_check=[*HealthCheck])
@given(
    limit=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(["begin", "end", "cancel", "cancel and end"]), st.integers(0, 9)),
        max_size=30,
    ),
)
async def test_no_slot_is_lost_and_nobody_overtakes(
    anyio_backend: str, limit: int, steps: list[tuple[str, int]]
) -> None:
    """Cancel a caller in line, at work, or at the moment it gets a slot."""
    slots = ConcurrencyLimit(limit)
    given: list[int] = []
    asked: list[int] = []
    working: dict[int, anyio.Event] = {}
    scopes: dict[int, anyio.CancelScope] = {}

    async def work(number: int, scope: anyio.CancelScope) -> None:
        with scope:
            asked.append(number)
            await slots.acquire(
                number % 3, lambda: Noted(waiter(anyio_backend), lambda: given.append(number))
            )
            try:
                if number not in given:  # it did not have to wait
                    given.append(number)
                working[number] = anyio.Event()
                assert len(working) <= limit
                await working[number].wait()
            finally:
                working.pop(number)
                slots.release()
        scopes.pop(number)

    async with anyio.create_task_group() as tasks:
        for number, (step, which) in enumerate(steps):
            if step == "begin":
                scopes[number] = anyio.CancelScope()
                tasks.start_soon(work, number, scopes[number])
            if "end" in step and working:
                list(working.values())[which % len(working)].set()
            if "cancel" in step and scopes:
                list(scopes.values())[which % len(scopes)].cancel()
            if which % 2:
                await settled_quickly()
                assert len(working) == min(limit, len(scopes))
        await settled_quickly()
        assert len(working) == min(limit, len(scopes))
        for peer in range(3):
            order = [asked.index(number) for number in given if number % 3 == peer]
            assert order == sorted(order)
        tasks.cancel_scope.cancel()
    for _ in range(limit):
        await slots.acquire("later", no_waiter)


async def test_peers_take_turns(anyio_backend: str) -> None:
    slots = ConcurrencyLimit(1)
    began: list[str] = []

    async def work(who: str) -> None:
        await slots.acquire(who, lambda: waiter(anyio_backend))
        began.append(who)
        slots.release()

    await slots.acquire("first", lambda: waiter(anyio_backend))
    async with anyio.create_task_group() as tasks:
        for name in [*["greedy"] * 5, "modest", "other"]:
            tasks.start_soon(work, name)
            await settled_quickly()
        slots.release()
    assert began == ["greedy", "modest", "other", *["greedy"] * 4]
    await slots.acquire("later", no_waiter)


async def settled_quickly() -> None:
    """Some turns of the loop."""
    for _ in range(8):
        await anyio.lowlevel.checkpoint()
