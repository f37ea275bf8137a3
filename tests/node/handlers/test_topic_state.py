"""Tests of topics with a state: first the state, then each change, and no gap between them."""

from functools import partial
from typing import Any

import anyio
import pytest

from parley import CallRefused, Node, ResultCode, SubscribeRequest
from parley._node.errors import ConfigError
from parley._node.handlers.interceptors import Intercepted, Proceed
from parley._node.handlers.topic import Topic
from parley._node.protocol.codes import CloseCode
from parley._node.testing import ConnectedNodes
from parley._node.trust.policies import AnyPeer
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio


class Counter:
    """A number, and a topic of its increments."""

    def __init__(self, node: Node, **options: Any) -> None:
        self.total = 0
        self.told = 0
        self.topic: Topic[Any] = node.topic("counter", state=self.state, **options)

    def state(self) -> int:
        self.told += 1
        return self.total

    async def add(self, number: int) -> None:
        self.total += number
        await self.topic.publish(number)


@pytest.mark.parametrize("options", [{}, {"keep": 100}])
async def test_the_state_comes_first_and_then_what_follows(
    met: ConnectedNodes, options: dict[str, Any]
) -> None:
    counter = Counter(met.server, **options)
    await counter.add(1)
    await counter.add(2)  # not flushed yet as the subscriber joins
    async with met.peer.subscribe("counter") as sub:
        assert sub.data == 3
        await counter.add(4)
        assert await anext(sub) == 4
        counter.topic.close()
        assert [note async for note in sub] == []


async def test_there_is_no_gap_however_long_the_decision_takes(met: ConnectedNodes) -> None:
    """The state includes notes that were published while a handler and an interceptor wait."""
    counter = Counter(met.server)

    @counter.topic.on_subscribe
    async def accept(request: SubscribeRequest) -> str:
        await counter.add(1)
        await anyio.lowlevel.checkpoint()
        await counter.add(1)
        return "not told"

    @met.server.intercept("subscribe")
    async def slow(one: Intercepted, proceed: Proceed) -> Any:
        data = await proceed(one)
        await counter.add(1)
        await anyio.lowlevel.checkpoint()
        await counter.add(1)
        return data

    async with anyio.create_task_group() as tasks:

        async def publish() -> None:
            while counter.total < 100:
                await counter.add(1)
                await anyio.lowlevel.checkpoint()

        tasks.start_soon(publish)
        async with met.peer.subscribe("counter") as sub:
            total: Any = sub.data
            while total < 100:
                total += await anext(sub)
        assert total == counter.total


async def test_one_that_goes_on_gets_what_it_missed_or_the_state_anew(met: ConnectedNodes) -> None:
    counter = Counter(met.server, keep=3)
    async with met.peer.subscribe("counter") as sub:
        await counter.add(1)
        assert await anext(sub) == 1
    await counter.add(2)
    async with met.peer.subscribe("counter", after=sub.position) as later:
        assert (later.data, later.recovered) == (None, True)
        assert await anext(later) == 2
    for _ in range(4):
        await counter.add(1)
    assert counter.told == 1
    async with met.peer.subscribe("counter", after=later.position) as anew:
        assert (anew.data, anew.recovered) == (7, False)  # more was published than is remembered
        await counter.add(1)
        assert await anext(anew) == 1


async def test_a_link_follows_over_its_sessions() -> None:
    async with new_node() as client, new_node() as server:
        counter = Counter(server)
        await counter.add(1)
        address = await server.listen("memory://counter")
        async with client.link(address, trust=AnyPeer()) as link:
            totals: list[Any] = []
            async with link.subscribe("counter") as sub:

                @sub.on_session
                def begin() -> None:
                    totals.append(sub.data)

                begin()
                server.peers[0].live.drop(CloseCode.GOING_AWAY)
                await counter.add(2)  # While there is no subscription.
                await eventually(lambda: sub.sessions == 2)
                await counter.add(3)
                assert await anext(sub) == 3
            assert totals == [1, 3]


async def test_a_state_that_fails_or_is_too_large_is_an_answer(met: ConnectedNodes) -> None:
    def fails() -> Any:
        raise KeyError("a bug")

    met.server.topic("fails", state=fails)
    met.server.topic("no form", state=lambda: object())  # type: ignore[arg-type, return-value]  # the mistake that is tested
    met.server.topic("large", state=lambda: bytes(2_000_000))
    for name, code in (
        ("fails", ResultCode.HANDLER_FAILED),
        ("no form", ResultCode.HANDLER_FAILED),
        ("large", ResultCode.PAYLOAD_TOO_LARGE),
    ):
        with pytest.raises(CallRefused) as refused:
            async with met.peer.subscribe(name):
                pass
        assert refused.value.code == code
        assert met.server.topics[name].subscribers == []


class Waits:
    async def __call__(self) -> int:
        return 1


@pytest.mark.parametrize("wrong", [Waits().__call__, Waits(), partial(Waits())])
async def test_a_state_is_a_plain_function(met: ConnectedNodes, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a plain function"):
        met.server.topic("x", state=wrong)
