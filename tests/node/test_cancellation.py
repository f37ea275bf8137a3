"""Cancelling an API call at any await leaves the connection usable.

A cancelled call leaves no used request ID, handler, task, stream or subscription on either side,
and both sides still answer.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import pytest
from anyio.lowlevel import cancel_shielded_checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley import Call, CallRefused, Peer, Stream
from parley._node.errors import StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.protocol.errors import LocalError
from parley._node.protocol.limits import Limits
from parley._node.testing import ConnectedNodes
from tests.inspection import topic_tables
from tests.node.network import config, eventually, meeting, other_tasks

pytestmark = pytest.mark.anyio

# Small windows, so that most actions wait for the other side.
WINDOW = 1024


class World:
    """Two connected nodes, each with handlers of every kind."""

    def __init__(self, met: ConnectedNodes) -> None:
        self.met = met
        self.topics: list[Topic] = []
        self.running = 0
        for node in (met.client, met.server):
            self.topics.append(node.topic("news", buffer=4096, slow="drop-oldest", patience=0.01))
            node.on_call("echo")(self.echo)
            node.on_call("slow")(self.slow)
            node.on_call("count", concurrency=1)(self.count)
            node.on_stream("echo")(self.echo_stream)
            node.on_stream("answering")(self.answering_stream)
            node.on_subscribe("news")(self.admit)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    async def echo(self, call: Call) -> Any:
        return call.data

    async def slow(self, call: Call) -> Any:
        with self.at_work():
            await turns(3)
            return call.data

    async def count(self, call: Call) -> AsyncIterator[bytes]:
        with self.at_work():
            for _ in range(40):
                yield bytes(100)

    async def echo_stream(self, stream: Stream) -> None:
        with self.at_work():
            async for data in stream:
                await stream.send(data)

    async def answering_stream(self, stream: Stream) -> None:
        with self.at_work():
            async for event in stream.events():
                await turns(1)
                await event.answer(2, event.data)

    async def admit(self, request: object) -> str:
        await turns(1)
        return "welcome"


async def turns(number: int) -> None:
    """Wait for turns of the loop; can be cancelled."""
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


# Actions of an application, each of which can be cancelled at any point.


async def call(world: World, peer: Peer) -> None:
    assert await peer.call("slow", [1]) == [1]


async def call_nobody(world: World, peer: Peer) -> None:
    with suppress(CallRefused):
        await peer.call("nobody")


async def read_all(world: World, peer: Peer) -> None:
    async with peer.call_stream("count", window=WINDOW) as answer:
        assert len([item async for item in answer]) == 40


async def read_some(world: World, peer: Peer) -> None:
    async with peer.call_stream("count", window=WINDOW) as answer:
        async for _ in answer:
            break


async def subscribe(world: World, peer: Peer) -> None:
    with suppress(CallRefused):  # another one is subscribed
        async with peer.subscribe("news", window=WINDOW) as notes:
            async for _ in notes:
                break


async def subscribe_batches(world: World, peer: Peer) -> None:
    with suppress(CallRefused):
        async with peer.subscribe("news") as notes:
            async for _ in notes.batches():
                break


async def publish(world: World, peer: Peer) -> None:
    for _ in range(5):
        await world.topics[peer is world.met.peer].publish(bytes(500))


async def stream_both_ways(world: World, peer: Peer) -> None:
    async with peer.open_stream("echo") as stream, anyio.create_task_group() as tasks:
        tasks.start_soon(send_all, stream)
        assert sum([len(data) async for data in stream]) == 10_000


async def send_all(stream: Stream) -> None:
    for _ in range(5):
        await stream.send(bytes(2000))
    await stream.send_eof()


async def stream_left(world: World, peer: Peer) -> None:
    stream = peer.open_stream("echo")
    try:
        await stream.send(bytes(3000))
        await stream.receive()
    finally:
        await stream.aclose()


async def stream_refused(world: World, peer: Peer) -> None:
    with suppress(StreamResetError):
        async with peer.open_stream("nobody") as stream:
            await stream.receive()


async def request(world: World, peer: Peer) -> None:
    async with peer.open_stream("answering", [(64, 2)]) as stream:
        for number in range(3):
            answer = await stream.request(64, 1, [number, bytes(500)])
            assert answer.data == [number, bytes(500)]


async def ping(world: World, peer: Peer) -> None:
    assert await peer.ping() >= 0


async def rekey(world: World, peer: Peer) -> None:
    with suppress(LocalError):  # there was one already
        await peer.rekey()


async def update_keys(world: World, peer: Peer) -> None:
    peer.update_keys()
    await turns(1)


Act = Callable[[World, Peer], Awaitable[None]]
ACTS: list[Act] = [
    call,
    call_nobody,
    read_all,
    read_some,
    subscribe,
    subscribe_batches,
    publish,
    stream_both_ways,
    stream_left,
    stream_refused,
    request,
    ping,
    rekey,
    update_keys,
]


class Step:
    """An action on one side, started after some turns of the loop and cancelled after more."""

    def __init__(self, act: Act, back: bool, begin: int, cancel: int) -> None:
        self.act = act
        self.back = back
        self.begin = begin
        self.cancel = cancel

    def __repr__(self) -> str:
        who = "back" if self.back else "peer"
        return f"Step({self.act.__name__} by {who}, {self.begin}, {self.cancel})"

    async def run(self, world: World) -> None:
        await turns(self.begin)
        peer = world.met.back if self.back else world.met.peer
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_later, scope, tasks)
                await self.act(world, peer)
                tasks.cancel_scope.cancel()

    async def _cancel_later(self, scope: anyio.CancelScope, tasks: object) -> None:
        for _ in range(self.cancel):
            await cancel_shielded_checkpoint()
        scope.cancel()


STEPS = st.builds(Step, st.sampled_from(ACTS), st.booleans(), st.integers(0, 6), st.integers(0, 40))


# The fixture is the name of the backend, the same for all examples.
@pytest.mark.slow
@settings(suppress_health_check=[*HealthCheck])
@given(steps=st.lists(STEPS, min_size=1, max_size=8))
async def test_cancelled_at_any_await(anyio_backend: str, steps: list[Step]) -> None:
    settings = config(limits=Limits(stream_window=WINDOW))
    async with meeting(client=settings, server=settings) as met:
        world = World(met)
        tasks_before = other_tasks()
        async with anyio.create_task_group() as tasks:
            for step in steps:
                tasks.start_soon(step.run, world)
        await usable(world)
        await eventually(lambda: other_tasks() <= tasks_before)


async def usable(world: World) -> None:
    """Check that nothing is left open, and that both sides can still use every feature."""
    met = world.met
    for topic in world.topics:
        # Events for cancelled tasks have been handled.
        await topic.publish("last")
    for peer in (met.peer, met.back):
        assert await peer.call("echo", "here", timeout=5) == "here"
        await eventually(lambda peer=peer: nothing_open(peer))  # type: ignore[misc]  # bound now
    assert world.running == 0
    for peer in (met.peer, met.back):
        async with peer.call_stream("count", window=WINDOW) as answer:
            assert len([item async for item in answer]) == 40
        async with peer.subscribe("news", timeout=5) as notes:
            await world.topics[peer is met.peer].publish("again")
            assert await anext(notes) == "again"
        await stream_both_ways(world, peer)
        await request(world, peer)
        assert await peer.ping() >= 0
    for peer in (met.peer, met.back):
        await eventually(lambda peer=peer: nothing_open(peer))  # type: ignore[misc]  # bound now
    assert world.running == 0
    assert [topic.subscribers for topic in world.topics] == [[], []]


def nothing_open(peer: Peer) -> bool:
    """Check that neither side has open requests, streams or unreturned credit."""
    session = peer.core.session
    assert session is not None
    mux = session.mux
    tables = (
        peer.outgoing,
        peer.calls.incoming,
        peer.streams,
        mux.stream_table.open,
        mux.outbox.held,
        mux.outbox.queues,
        peer.live.pings,
    )
    waiting = any(len(table) for table in tables) or any(topic_tables(peer.topics).values())
    return not waiting and not mux.unconsumed
