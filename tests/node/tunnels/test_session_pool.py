"""Tests of node/tunnels/session_pool.py: which sessions are shared, kept open and evicted."""

from contextlib import AsyncExitStack
from typing import Any, Self

import anyio
import pytest

from parley._node.peer.peer import Peer
from parley._node.protocol.errors import LimitReachedError, LocalError
from parley._node.testing import connect_nodes
from parley._node.tunnels.session_pool import SessionPool
from tests.node.network import PATIENCE, eventually, new_node

pytestmark = pytest.mark.anyio


class Sessions:
    """A pool of sessions between two nodes."""

    def __init__(self, limit: int | None = None) -> None:
        self.nodes = new_node(), new_node()
        self._entered = AsyncExitStack()
        self.opened: list[Peer] = []
        self.fails = False
        self.most = 0
        self.pool: SessionPool[str] = SessionPool(
            lambda peer: self.nodes[0].backend.spawn(peer.close), limit=limit
        )

    async def __aenter__(self) -> Self:
        self._entered.enter_context(anyio.fail_after(PATIENCE))
        for node in self.nodes:
            await self._entered.enter_async_context(node)
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._entered.__aexit__(*exception)

    async def open(self) -> Peer:
        self.most = max(self.most, len(self.pool))
        await anyio.lowlevel.checkpoint()
        if self.fails:
            raise ConnectionError
        self.opened.append((await connect_nodes(*self.nodes))[0])
        return self.opened[-1]


async def test_a_session_is_opened_once_and_closed_after_its_last_user() -> None:
    async with Sessions() as sessions:
        pool = sessions.pool
        async with pool.use("a", sessions.open) as first, pool.use("a", sessions.open) as second:
            assert first is second
            async with pool.use("b", sessions.open) as other:
                assert other is not first
            await eventually(lambda: other.is_gone)
            assert not first.is_gone
        await eventually(lambda: first.is_gone)
        sessions.fails = True
        with pytest.raises(ConnectionError):
            await pool.acquire("a", sessions.open)
        assert len(pool) == 0


async def test_a_session_that_ended_is_replaced() -> None:
    async with Sessions() as sessions, sessions.pool.use("a", sessions.open) as first:
        await first.close()
        async with sessions.pool.use("a", sessions.open) as second:
            assert second is not first
            assert second.is_open


async def test_with_a_limit_unused_sessions_stay_until_their_place_is_needed() -> None:
    async with Sessions(limit=1) as sessions:
        pool = sessions.pool
        async with pool.use("a", sessions.open) as first:
            with pytest.raises(LimitReachedError, match="all 1 sessions are in use"):
                await pool.acquire("b", sessions.open)
        async with pool.use("a", sessions.open) as same:
            assert same is first
        sessions.fails = True
        with pytest.raises(ConnectionError):
            await pool.acquire("b", sessions.open)
        await eventually(lambda: first.is_gone)
        assert len(pool) == 0  # a failed session takes no capacity
        sessions.fails = False
        async with pool.use("a", sessions.open) as another:
            assert another is not first


async def test_the_limit_holds_for_users_at_once() -> None:
    sessions = Sessions(limit=1)
    refused: list[str] = []

    async def use(key: str) -> None:
        try:
            async with sessions.pool.use(key, sessions.open):
                await anyio.sleep(0.01)
        except LocalError:
            refused.append(key)

    async with sessions:
        await use("a")
        async with anyio.create_task_group() as tasks:
            for key in ("b", "c"):
                tasks.start_soon(use, key)
    assert sessions.most == 1
    assert len(refused) == 1
