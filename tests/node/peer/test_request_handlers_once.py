"""Tests of calls that are made once, end to end: their handlers run once for each key."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from parley import Call, CallRefused, CallTimeout, Node, Peer
from parley._crypto.identity import Identity
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import ConfigError, NotOnceError, OutcomeUnknownError
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.testing import FakeClock, connect_nodes
from tests.inspection import memory_of, once_of
from tests.node.network import config, eventually, meeting, new_node, started

pytestmark = pytest.mark.anyio

KEY = bytes(range(16))


class Shop:
    """A node with one handler, `order`, that counts and works until it is released."""

    def __init__(self, node: Node, **options: Any) -> None:
        self.node = node
        self.ran: list[Any] = []
        self.stopped: list[Any] = []
        self.finish = anyio.Event()
        self.finish.set()
        node.on_call("order", **{"once": True, **options})(self.order)

    async def order(self, call: Call) -> Any:
        self.ran.append(call.data)
        try:
            await self.finish.wait()
            await anyio.lowlevel.checkpoint()
        except BaseException:
            self.stopped.append(call.data)
            raise
        return {"number": len(self.ran)}

    def hold(self) -> None:
        self.finish = anyio.Event()


class Town:
    """A client with an identity that comes again, and the shop."""

    def __init__(self, client: Node, shop: Shop) -> None:
        self.client = client
        self.shop = shop

    async def visit(self) -> Peer:
        peer, _ = await connect_nodes(self.client, self.shop.node)
        return peer

    @property
    def memory(self) -> Any:
        return once_of(self.shop.node)


@pytest.fixture
async def town(anyio_backend: str) -> AsyncIterator[Town]:
    async with new_node() as client, new_node() as server:
        yield Town(client, Shop(server))


# One answer for each key.


async def test_the_same_key_has_the_same_answer(town: Town) -> None:
    peer = await town.visit()
    assert await peer.call("order", "tea", once=KEY) == {"number": 1}
    assert await peer.call("order", "tea", once=KEY) == {"number": 1}
    await peer.close()
    peer = await town.visit()
    assert await peer.call("order", "tea", once=KEY) == {"number": 1}
    assert await peer.call("order", "tea", once=bytes(16)) == {"number": 2}
    assert await peer.call("order", "tea", once=True) == {"number": 3}
    assert await peer.call("order", "tea", once=True) == {"number": 4}
    assert town.shop.ran == ["tea"] * 4


async def test_without_a_key_it_is_a_call_like_any_other(town: Town) -> None:
    peer = await town.visit()
    assert await peer.call("order", 1) == {"number": 1}
    assert await peer.call("order", 1) == {"number": 2}
    assert len(town.memory) == 0


async def test_those_that_come_meanwhile_wait_for_the_first(town: Town) -> None:
    town.shop.hold()
    peers = [await town.visit(), await town.visit()]
    async with create_task_group() as tasks:
        outcomes = [
            await started(tasks, lambda peer=peer: peer.call("order", once=KEY))  # type: ignore[misc]  # bound now
            for peer in peers * 3
        ]
        with pytest.raises(CallRefused) as caught:
            await peers[0].call("order", "something else", once=KEY)
        assert caught.value.code == ResultCode.MALFORMED
        town.shop.finish.set()
    assert outcomes == [[{"number": 1}]] * 6
    assert town.shop.ran == [None]


async def test_failures_are_remembered(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([ValueError("a secret"), {1, 2}, bytes(70_000)])
    ran = []

    @town.shop.node.on_call("odd", once=True)
    async def odd(call: Call) -> Any:
        ran.append(call)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    peer = await town.visit()
    told: list[object] = []
    for key in (bytes([1] * 16), bytes([2] * 16), bytes([3] * 16)):
        for _ in range(2):
            with pytest.raises(CallRefused) as caught:
                await peer.call("odd", once=key)
            assert caught.value.code == ResultCode.HANDLER_FAILED
            told.append(caught.value.data)
    assert told[:4] == ["the handler failed"] * 4
    assert told[4:] == ["the answer is longer than what is remembered"] * 2
    assert len(ran) == 3
    assert "cannot be encoded" in caplog.text
    assert "too long to be remembered" in caplog.text


async def test_the_longest_answer_is_remembered(town: Town) -> None:
    size = 64 * 1024 - 11  # a map of code and data
    town.shop.node.on_call("long", once=True)(lambda call: bytes(size))
    peer = await town.visit()
    for _ in range(2):
        assert await peer.call("long", once=KEY) == bytes(size)


async def test_rights_are_asked_each_time(town: Town) -> None:
    shop = town.shop.node
    asked = []

    def allow(peer: object, name: str) -> bool:
        asked.append(name)
        return len(asked) != 2

    ran = []

    @shop.on_call("private", once=True, allow=allow)
    async def private(call: Call) -> None:
        ran.append(call)

    peer = await town.visit()
    await peer.call("private", once=KEY)
    with pytest.raises(CallRefused) as caught:
        await peer.call("private", once=KEY)
    assert caught.value.code == ResultCode.NOT_AUTHORISED
    await peer.call("private", once=KEY)
    assert (len(ran), len(asked)) == (1, 3)
    # A refused caller's call isn't remembered either.
    shop.on_call("closed", once=True, allow=lambda peer, name: False)(lambda call: None)
    before = len(town.memory)
    with pytest.raises(CallRefused):
        await peer.call("closed", once=True)
    assert len(town.memory) == before


async def test_slots_hold_for_it(town: Town) -> None:
    running, most = 0, 0

    @town.shop.node.on_call("slow", once=True, concurrency=2)
    async def slow(call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(0.001)
        running -= 1

    peer = await town.visit()
    async with create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(partial(peer.call, "slow", number, once=True))
    assert most == 2


# Calls that can't run at most once.


async def test_handlers_without_once_are_not_run(town: Town) -> None:
    ran: list[object] = []
    town.shop.node.on_call("plain")(ran.append)
    peer = await town.visit()
    with pytest.raises(NotOnceError) as caught:
        await peer.call("plain", once=True)
    assert (caught.value.code, caught.value.received) == (ResultCode.NOT_ONCE, True)
    assert not ran


async def test_answers_in_items_are_not_once(town: Town) -> None:
    ran = []

    async def items(call: Call) -> AsyncIterator[int]:
        ran.append(call)
        yield 1

    with pytest.raises(ConfigError, match="in items"):
        town.shop.node.on_call("items", once=True)(items)
    town.shop.node.on_call("items", once=True)(lambda call: items(call))
    peer = await town.visit()
    with pytest.raises(NotOnceError):
        await peer.call("items", once=KEY)
    assert not ran
    assert len(town.memory) == 0


async def test_a_node_that_remembers_nothing_is_not_asked() -> None:
    async with meeting() as met:
        ran: list[object] = []
        met.server.on_call("plain")(ran.append)
        assert met.peer.once_epoch is None
        with pytest.raises(NotOnceError) as caught:
            await met.peer.call("plain", once=True)
        assert not caught.value.received
        assert met.back.dropped == 0
        # It is known to those that connect from the first such handler on.
        met.server.on_call("once", once=True)(lambda call: "done")
        with pytest.raises(NotOnceError):
            await met.peer.call("once", once=True)
        peer, _ = await connect_nodes(met.client, met.server)
        assert await peer.call("once", once=True) == "done"


async def test_unencrypted_connections_are_not_once() -> None:
    async with meeting(plaintext="only") as met:
        shop = Shop(met.server)
        peer, _ = await connect_nodes(met.client, met.server)
        assert peer.once_epoch is None
        # One that sends a key all the same.
        waiter = peer.backend.waiter()
        asked = peer.outgoing.call("order", 1, peer.backend.now(), 5, waiter.wake, once=KEY)
        await waiter
        assert asked.code == ResultCode.NOT_ONCE
        assert not shop.ran


async def test_a_call_that_wants_no_answer_is_dropped(town: Town) -> None:
    peer = await town.visit()
    await eventually(lambda: bool(town.shop.node.peers))
    (back,) = town.shop.node.peers
    peer.core.send(1, 0, 3, 1, encode({keys.TOPIC: "order", keys.ONCE_KEY: KEY}))
    peer.driver.step()
    await eventually(lambda: back.dropped == 1)
    assert back.running_calls == 0
    assert not town.shop.ran


@pytest.mark.parametrize("size", [0, 15, 17])
async def test_keys_are_16_bytes(town: Town, size: int) -> None:
    peer = await town.visit()
    with pytest.raises(ValueError, match="16 bytes"):
        await peer.call("order", once=bytes(size))
    waiter = peer.backend.waiter()
    asked = peer.outgoing.call("order", 1, peer.backend.now(), 5, waiter.wake, once=bytes(size))
    await waiter
    assert asked.code == ResultCode.MALFORMED
    assert not town.shop.ran


# Ends.


async def test_it_outlives_its_session(town: Town) -> None:
    town.shop.hold()
    peer = await town.visit()
    (back,) = town.shop.node.peers
    async with create_task_group() as tasks:
        lost = await started(tasks, lambda: peer.call("order", once=True))
        back.live.drop(CloseCode.OVERLOADED)
        await eventually(lambda: bool(lost))
        error = lost[0]
        assert isinstance(error, OutcomeUnknownError)
        assert error.code == CloseCode.OVERLOADED
        assert error.once_epoch == peer.once_epoch
        assert error.sent <= peer.backend.now()
        assert town.memory.running == 1
        peer = await town.visit()
        again = await started(tasks, lambda: peer.call("order", once=error.key))
        assert not again
        town.shop.finish.set()
    assert again == [{"number": 1}]
    assert town.shop.ran == [None]
    assert town.shop.stopped == []


async def test_its_deadline_ends_it_also_without_a_session() -> None:
    clock = FakeClock()
    async with (
        Node(Identity.create(), config=config(), clock=clock) as client,
        Node(Identity.create(), config=config(), clock=clock) as server,
    ):
        town = Town(client, Shop(server))
        town.shop.hold()
        peer = await town.visit()
        (back,) = server.peers
        async with create_task_group() as tasks:
            lost = await started(tasks, lambda: peer.call("order", once=KEY, timeout=60))
            back.live.drop(CloseCode.NORMAL)
            await eventually(lambda: bool(lost))
        clock.advance(59)
        assert town.shop.stopped == []
        clock.advance(1.1)
        await eventually(lambda: bool(town.shop.stopped))
        peer = await town.visit()
        with pytest.raises(CallTimeout):
            await peer.call("order", once=KEY)
        assert town.shop.ran == [None]


async def test_a_later_call_gives_up_alone(town: Town) -> None:
    town.shop.hold()
    first, second = await town.visit(), await town.visit()
    async with create_task_group() as tasks:
        outcome = await started(tasks, lambda: first.call("order", once=KEY))
        with pytest.raises(CallTimeout):
            await second.call("order", once=KEY, timeout=0.02)
        with anyio.move_on_after(0.02):
            await second.call("order", once=KEY)
        town.shop.finish.set()
    assert outcome == [{"number": 1}]
    assert town.shop.stopped == []


async def test_the_last_that_is_cancelled_stops_it(town: Town) -> None:
    town.shop.hold()
    first, second = await town.visit(), await town.visit()
    async with create_task_group() as tasks:
        await started(tasks, lambda: first.call("order", once=KEY))
        await started(tasks, lambda: second.call("order", once=KEY))
        assert town.shop.stopped == []
        tasks.cancel_scope.cancel()
    await eventually(lambda: town.shop.stopped == [None])
    await eventually(lambda: town.memory.running == 0)
    with pytest.raises(CallRefused) as caught:
        await first.call("order", once=KEY)
    assert caught.value.code == ResultCode.CANCELLED
    assert town.shop.ran == [None]


async def test_a_node_that_closes_waits_for_it() -> None:
    done = []
    async with new_node() as client:
        async with new_node(drain_timeout=5) as server:
            shop = Shop(server)
            shop.hold()
            peer, back = await connect_nodes(client, server)
            async with create_task_group() as tasks:
                await started(tasks, lambda: peer.call("order", once=KEY))
                back.live.drop(CloseCode.NORMAL)
                await eventually(lambda: back.is_gone)

                async def close() -> None:
                    await server.aclose()
                    done.append(once_of(server).running)

                tasks.start_soon(close)
                await anyio.sleep(0.02)
                assert not done
                shop.finish.set()
        assert done == [0]


async def test_a_node_that_stops_stops_it() -> None:
    async with new_node() as client:
        async with new_node(drain_timeout=0) as server:
            shop = Shop(server)
            shop.hold()
            peer, back = await connect_nodes(client, server)
            epoch = peer.once_epoch
            async with create_task_group() as tasks:
                lost = await started(tasks, lambda: peer.call("order", once=KEY))
                back.live.drop(CloseCode.NORMAL)
                await eventually(lambda: bool(lost))
        assert shop.stopped == [None]
        assert once_of(server).running == 0
        assert memory_of(server).held == 0  # Its state isn't kept.
        # After a restart it has forgotten, and reports that.
        async with server:
            peer, _ = await connect_nodes(client, server)
            assert epoch != peer.once_epoch
            shop.finish.set()
            assert await peer.call("order", once=KEY) == {"number": 2}


# With types.


@dataclass
class Order:
    what: str
    count: int = 1


async def test_typed_handlers_are_once_as_well(town: Town) -> None:
    ran: list[Order] = []

    @town.shop.node.on_call("typed", once=True)
    async def typed(call: Call[Order]) -> list[Order]:
        ran.append(call.data)
        return [call.data, Order("bill", len(ran))]

    peer = await town.visit()
    for _ in range(2):
        answer = await peer.call("typed", Order("tea", 2), once=KEY, returns=list[Order])
        assert answer == [Order("tea", 2), Order("bill", 1)]
    # A malformed call doesn't run: its key is free.
    key = bytes(16)
    with pytest.raises(CallRefused) as caught:
        await peer.call("typed", {"what": 5}, once=key)
    assert caught.value.code == ResultCode.MALFORMED
    assert await peer.call("typed", Order("tea"), once=key, returns=list[Order])
    assert len(ran) == 2
