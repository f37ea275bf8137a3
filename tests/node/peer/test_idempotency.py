"""Tests of node/peer/idempotency.py: when a call with `once=` is sent again."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from parley import Call, CallRefused, Node
from parley._crypto.identity import Identity
from parley._node.errors import NotOnceError, OutcomeUnknownError, PeerClosedError
from parley._node.peer import idempotency as once_key
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import ONCE_AGAIN
from parley._node.testing import FakeClock, connect_nodes
from tests.node.network import config, eventually, started

pytestmark = pytest.mark.anyio


class Restarts:
    """A client, and a server with one identity that can be restarted."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = Node(Identity.create(), config=config(), clock=self.clock)
        self.identity = Identity.create()
        self.ran: list[object] = []
        self.finish = anyio.Event()

    def server(self, *, once: bool = True) -> Node:
        node = Node(self.identity, config=config(drain_timeout=0), clock=self.clock)

        @node.on_call("work", once=once)
        async def work(call: Call) -> object:
            self.ran.append(call.data)
            await self.finish.wait()
            return [call.data]

        return node

    async def lose(self, server: Node, key: IdempotencyKey | None) -> OutcomeUnknownError:
        """Call, and lose the session before the answer."""
        peer, back = await connect_nodes(self.client, server)
        before = len(self.ran)
        async with create_task_group() as tasks:
            lost = await started(
                tasks, lambda: peer.call("work", 1, once=key or True, timeout=None)
            )
            await eventually(lambda: len(self.ran) > before)
            back.live.drop(CloseCode.GOING_AWAY)
            await eventually(lambda: bool(lost))
        assert isinstance(lost[0], OutcomeUnknownError)
        return lost[0]


@pytest.fixture
async def restarts(anyio_backend: str) -> AsyncIterator[Restarts]:
    restarts = Restarts()
    async with restarts.client:
        yield restarts


async def test_it_is_asked_again_where_it_was_asked(restarts: Restarts) -> None:
    key = IdempotencyKey()
    async with restarts.server() as server:
        error = await restarts.lose(server, key)
        assert (error.key, error.once_epoch, error.sent) == (key.value, key.epoch, key.sent)
        assert not key.is_over
        restarts.finish.set()
        restarts.clock.advance(ONCE_AGAIN)
        peer, _ = await connect_nodes(restarts.client, server)
        assert await peer.call("work", 1, once=key) == [1]
    assert restarts.ran == [1]


async def test_the_time_is_that_of_the_first_sending(restarts: Restarts) -> None:
    key = IdempotencyKey()
    async with restarts.server() as server:
        first = await restarts.lose(server, key)
        restarts.clock.advance(ONCE_AGAIN - 1)
        peer, back = await connect_nodes(restarts.client, server)
        async with create_task_group() as tasks:
            lost = await started(tasks, lambda: peer.call("work", 1, once=key, timeout=None))
            back.live.drop(CloseCode.OVERLOADED)
            await eventually(lambda: bool(lost))
        second = lost[0]
        assert isinstance(second, OutcomeUnknownError)
        assert (second.sent, second.code) == (first.sent, CloseCode.OVERLOADED)
        restarts.clock.advance(1.1)
        peer, back = await connect_nodes(restarts.client, server)
        with pytest.raises(OutcomeUnknownError) as caught:
            await peer.call("work", 1, once=key)
        assert caught.value.sent == first.sent
        assert key.is_over
        assert back.running_calls == 0


async def test_the_sleep_of_the_machine_counts(
    restarts: Restarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's clock is frozen, and the other node forgets its calls."""
    slept = 0.0
    awake = once_key.time_with_sleep
    monkeypatch.setattr(once_key, "time_with_sleep", lambda: awake() + slept)
    key = IdempotencyKey()
    async with restarts.server() as server:
        await restarts.lose(server, key)
        for seconds, over in ((ONCE_AGAIN - 60, False), (120, True)):
            slept += seconds
            peer, back = await connect_nodes(restarts.client, server)
            async with create_task_group() as tasks:
                lost = await started(tasks, partial(peer.call, "work", 1, once=key, timeout=None))
                back.live.drop(CloseCode.NORMAL)
                await eventually(partial(bool, lost))
            assert isinstance(lost[0], OutcomeUnknownError)
            assert key.is_over == over
    assert restarts.ran == [1]
    assert IdempotencyKey().age(1e9) == 0


async def test_a_node_that_was_started_anew_is_not_asked(restarts: Restarts) -> None:
    key = IdempotencyKey()
    async with restarts.server() as server:
        await restarts.lose(server, key)
    for once in (True, False):
        async with restarts.server(once=once) as server:
            peer, _ = await connect_nodes(restarts.client, server)
            with pytest.raises(OutcomeUnknownError):
                await peer.call("work", 1, once=key)
            assert key.is_over
    assert restarts.ran == [1]


async def test_what_was_never_sent_may_be_asked_of_any(restarts: Restarts) -> None:
    key = IdempotencyKey()
    restarts.finish.set()
    async with restarts.server() as server:
        peer, _ = await connect_nodes(restarts.client, server)
        await peer.close()
        with pytest.raises(PeerClosedError) as caught:
            await peer.call("work", 1, once=key)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert key.sent is None
    async with restarts.server(once=False) as server:
        peer, _ = await connect_nodes(restarts.client, server)
        with pytest.raises(NotOnceError):
            await peer.call("work", 1, once=key)
    async with restarts.server() as server:
        peer, _ = await connect_nodes(restarts.client, server)
        assert await peer.call("work", 1, once=key) == [1]


async def test_a_refusal_of_the_second_sending_says_nothing_of_the_first(
    restarts: Restarts,
) -> None:
    allowed = True
    key = IdempotencyKey()
    server = Node(restarts.identity, config=config(drain_timeout=0), clock=restarts.clock)

    @server.on_call("work", once=True, allow=lambda peer, name: allowed)
    async def work(call: Call) -> None:
        restarts.ran.append(call.data)
        await restarts.finish.wait()

    async with server:
        await restarts.lose(server, key)
        allowed = False
        peer, _ = await connect_nodes(restarts.client, server)
        with pytest.raises(OutcomeUnknownError) as caught:
            await peer.call("work", 1, once=key)
        assert isinstance(caught.value.__cause__, CallRefused)
        assert key.is_over
        with pytest.raises(CallRefused) as refused:
            await peer.call("work", 1, once=IdempotencyKey())
        assert refused.value.code == 20


@pytest.mark.parametrize("make", [IdempotencyKey, lambda: IdempotencyKey(bytes(16))])
def test_keys(make: Callable[[], IdempotencyKey]) -> None:
    key = make()
    assert len(key.value) == 16
    assert IdempotencyKey.of(key) is key
    assert IdempotencyKey.of(key.value).value == key.value
    assert IdempotencyKey.of(True).value != IdempotencyKey.of(True).value
    with pytest.raises(ValueError, match="invalid key of 5 bytes"):
        IdempotencyKey.of(b"short")


@pytest.mark.parametrize("once", [None, 0, 1, "0123456789abcdef", bytearray(16), memoryview(b"")])
def test_what_is_no_key_is_not_taken_for_a_new_one(once: Any) -> None:
    with pytest.raises(TypeError, match=r"invalid once .*: expected True"):
        IdempotencyKey.of(once)
