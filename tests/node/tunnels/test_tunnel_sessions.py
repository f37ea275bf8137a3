"""Tests of node/tunnels/tunnel_sessions.py: how often a session tries to leave its tunnel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest
from anyio.abc import ByteStream

from parley._node.errors import UnreachableError
from parley._node.peer.peer import Peer
from parley._node.testing import FakeClock
from parley._node.transport.memory import memory_pair
from parley._node.trust.policies import AnyPeer
from parley._node.tunnels.tunnel_sessions import PAUSES, keep_direct
from tests.node.network import eventually, meeting

pytestmark = pytest.mark.anyio


class Attempts:
    """Replaces the redialling; records the times of attempts."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.times: list[float] = []

    def begin(self) -> None:
        pass

    def now(self, by: int | None = None) -> None:
        assert by == 1
        self.times.append(self._peer.backend.now())

    def stop(self) -> None:
        pass


def move(peer: Peer, *, direct: bool) -> None:
    """Give the session another transport."""
    node_id = peer.node_id
    assert node_id is not None
    peer.driver.path = () if direct else (node_id, node_id)
    peer.live.changed()


async def never() -> ByteStream:
    raise UnreachableError("nobody is there")


@asynccontextmanager
async def tunnelled(clock: FakeClock | None = None) -> AsyncIterator[tuple[Peer, Attempts]]:
    """Return a session that can be resumed and appears to use a tunnel."""
    async with meeting(clock=clock, resume=30.0) as met:
        ours, theirs = memory_pair()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(met.server.accept_stream, theirs)
            peer = await met.client.connect_stream(ours, trust=AnyPeer(), redial=never)
        attempts = Attempts(peer)
        peer.live.use_resumer(attempts)
        move(peer, direct=False)
        yield peer, attempts


async def test_attempts_come_after_growing_pauses() -> None:
    clock = FakeClock()
    async with tunnelled(clock) as (peer, attempts):
        start = clock.now()
        runner = peer.backend.spawn(keep_direct, peer, 1, lambda: 1.0)
        await eventually(lambda: len(attempts.times) == 1)
        await clock.tick(3 * PAUSES.longest)
        waits = [after - before for before, after in pairwise(attempts.times)]
        assert attempts.times[0] == start
        assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, PAUSES.longest]
        runner.cancel()


async def test_what_comes_back_at_once_was_no_success() -> None:
    clock = FakeClock()
    async with tunnelled(clock) as (peer, attempts):
        runner = peer.backend.spawn(keep_direct, peer, 1, lambda: 1.0)
        await eventually(lambda: len(attempts.times) == 1)
        move(peer, direct=True)
        await clock.tick(PAUSES.steady / 2)
        move(peer, direct=False)
        await clock.tick(PAUSES.first / 2)
        assert len(attempts.times) == 1  # it pauses
        await clock.tick(PAUSES.first)
        assert len(attempts.times) == 2
        move(peer, direct=True)
        await clock.tick(PAUSES.steady * 2)
        assert len(attempts.times) == 2  # no attempt is possible
        move(peer, direct=False)
        await clock.tick(0)
        assert len(attempts.times) == 3  # the connection lasted, so it tries again immediately
        runner.cancel()


async def test_it_ends_with_its_session_or_if_that_cannot_move() -> None:
    async with tunnelled() as (peer, attempts), anyio.create_task_group() as tasks:
        tasks.start_soon(keep_direct, peer, 1)
        await eventually(lambda: len(attempts.times) == 1)
        await peer.close()
    async with meeting(resume=0.0) as met:
        met.peer.live.use_resumer(Attempts(met.peer))
        await keep_direct(met.peer, 1)
