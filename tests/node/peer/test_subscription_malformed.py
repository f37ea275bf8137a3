"""Notes that are not of the type a subscriber wants: raised, skipped, or given to a function."""

from typing import Any

import anyio
import pytest

from parley import MalformedDataError, Peer
from parley._lbm.codec import Value
from parley._node.testing import ConnectedNodes
from parley.errors import ConfigError
from tests.node.network import meeting

pytestmark = pytest.mark.anyio

NOTES: list[Value] = [1, "two", 3, "four", "five", 6, "seven"]
NUMBERS = [1, 3, 6]


async def publish(met: ConnectedNodes, notes: list[Value]) -> None:
    topic = met.server.topics["x"]
    for note in notes:
        await topic.publish(note)
    topic.close()


@pytest.mark.parametrize("over_link", [False, True])
@pytest.mark.parametrize("read", ["notes", "batches"])
async def test_they_are_skipped_and_counted(over_link: bool, read: str) -> None:
    async with meeting() as met:
        met.server.topic("x")
        address = await met.server.listen("memory://malformed")
        async with met.client.link(address) as link:
            asked: Any = link if over_link else met.peer
            told: list[tuple[Value, str]] = []

            def tell(note: Value, error: MalformedDataError) -> None:
                told.append((note, error.place))

            for wanted in ("skip", tell):
                async with asked.subscribe("x", returns=int, on_malformed=wanted) as sub:
                    await publish(met, NOTES)
                    with anyio.fail_after(10):
                        if read == "notes":
                            got = [note async for note in sub]
                        else:
                            got = [note async for batch in sub.batches() for note in batch]
                    assert got == NUMBERS
                    assert sub.malformed == 4
            assert told == [(note, "$") for note in NOTES if isinstance(note, str)]


async def test_they_are_skipped_behind_interceptors() -> None:
    async with meeting() as met:
        met.server.topic("x")

        @met.client.intercept("note")
        async def count(one: Any, proceed: Any) -> Any:
            return await proceed(one)

        async with met.peer.subscribe("x", returns=int, on_malformed="skip") as sub:
            await publish(met, NOTES)
            assert [note async for batch in sub.batches() for note in batch] == NUMBERS


async def test_they_are_raised_by_default() -> None:
    async with meeting() as met:
        met.server.topic("x")
        async with met.peer.subscribe("x", returns=int) as sub:
            await publish(met, NOTES[:3])
            assert await anext(sub) == 1
            with pytest.raises(MalformedDataError):
                await anext(sub)
            assert await anext(sub) == 3
            assert sub.malformed == 0


async def test_what_the_function_raises_is_raised_and_the_next_note_can_be_read() -> None:
    def fail(note: Value, error: MalformedDataError) -> None:
        raise ZeroDivisionError

    async with meeting() as met:
        met.server.topic("x")
        async with met.peer.subscribe("x", returns=int, on_malformed=fail) as sub:
            await publish(met, NOTES[:3])
            assert await anext(sub) == 1
            with pytest.raises(ZeroDivisionError):
                await anext(sub)
            assert await anext(sub) == 3


@pytest.mark.parametrize("wrong", [None, "ignore", 5, lambda error: None])
async def test_what_it_cannot_be(wrong: Any) -> None:
    async with meeting() as met:
        peer: Peer = met.peer
        with pytest.raises(ConfigError, match="on_malformed"):
            peer.subscribe("x", returns=int, on_malformed=wrong)
