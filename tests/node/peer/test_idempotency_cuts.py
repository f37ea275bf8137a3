"""Calls that run at most once, over sessions that end at any moment and a node that restarts."""

from collections import Counter
from itertools import count
from random import Random  # noqa: TID251 - when to cut

import anyio
import anyio.lowlevel
import pytest
from anyio import create_task_group

from parley import Call, Node, Peer
from parley._crypto.identity import Identity
from parley._node.errors import CallRefused, HandshakeError, OutcomeUnknownError, PeerClosedError
from parley._node.messaging.idempotency import NOT_REMEMBERED
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.protocol.codes import CloseCode
from parley._node.testing import connect_nodes
from tests.node.network import config, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CALLERS = 12
STARTS = 4
SESSIONS = 6


class World:
    """A client, and a server that restarts, with sessions that are cut at any moment."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.client = Node(Identity.create(), config=config())
        self.identity = Identity.create()
        self.session: Peer | None = None
        self.ran: Counter[object] = Counter()
        self.outcomes: dict[int, str] = {}
        self.numbers = count()
        self.over = False

    @property
    def answered(self) -> int:
        return list(self.outcomes.values()).count("answered")

    async def hear_of(self, more: int) -> None:
        enough = self.answered + more
        await eventually(lambda: self.answered >= enough)

    async def work(self, call: Call) -> object:
        self.ran[call.data] += 1
        await anyio.sleep(self.random.choice([0, 0, 0.001, 0.004]))
        return call.data

    async def serve(self) -> None:
        for _ in range(STARTS):
            server = Node(self.identity, config=config(drain_timeout=0))
            server.on_call("work", once=True)(self.work)
            async with server:
                for _ in range(SESSIONS):
                    try:
                        self.session, back = await connect_nodes(self.client, server)
                    except HandshakeError:
                        continue
                    await self.hear_of(self.random.choice([1, 4, 9]))
                    await anyio.sleep(self.random.choice([0, 0.001, 0.004]))
                    end = self.random.choice([self.session, back])
                    if self.random.random() < 0.5:
                        end.live.drop(CloseCode.NORMAL)
                    else:
                        end.core.abort(end.backend.now(), CloseCode.CONNECTION_LOST, "cut")
                        end.driver.step()
        self.over = True

    async def call(self) -> None:
        """What a link does for its callers, one call after the other."""
        while not self.over:
            number, key = next(self.numbers), IdempotencyKey()
            while number not in self.outcomes and not self.over:
                await anyio.lowlevel.checkpoint()
                if self.session is None or not self.session.is_open:
                    continue
                try:
                    assert await self.session.call("work", number, once=key) == number
                    self.outcomes[number] = "answered"
                except OutcomeUnknownError:
                    if key.is_over:
                        self.outcomes[number] = "unknown"
                except PeerClosedError:
                    pass  # it was not sent
                except CallRefused as refused:
                    said_nothing = refused.code in NOT_REMEMBERED  # it was closing
                    self.outcomes[number] = "refused" if said_nothing else "failed"


@pytest.mark.parametrize("seed", range(2))
async def test_each_is_run_once_and_answered_or_told_as_unknown(seed: int) -> None:
    world = World(seed)
    async with world.client:
        with anyio.fail_after(30):
            async with create_task_group() as tasks:
                tasks.start_soon(world.serve)
                for _ in range(CALLERS):
                    tasks.start_soon(world.call)
    told = Counter(world.outcomes.values())
    assert max(world.ran.values()) == 1
    for number, outcome in world.outcomes.items():
        assert outcome == "unknown" or world.ran[number] == (outcome == "answered")
    assert told["failed"] == 0
    assert told["answered"] > 50
    assert told["unknown"] <= CALLERS * STARTS
