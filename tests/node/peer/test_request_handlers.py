"""Tests of node/peer/request_handlers.py: limits, supercategories, and one response each."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import create_task_group

from parley import Call, CallRefused, CallTimeout, NodeConfig, Peer, Stream
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.protocol.codes import ROLES, CloseCode, ResultCode, Supercategory, supercategory
from parley._node.testing import ConnectedNodes, FaultyLink, connect_nodes
from tests.node.network import config, eventually, meeting, new_node, settled, started

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "tcp"])
async def met(anyio_backend: str, request: pytest.FixtureRequest) -> AsyncIterator[ConnectedNodes]:
    async with meeting(transport=request.param) as met:
        yield met


class Counter:
    """A handler that works until it is released, and counts concurrent runs."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.began: list[object] = []
        self.finish = anyio.Event()

    async def handle(self, call: Call) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.append(call.data)
        try:
            await self.finish.wait()
            await anyio.lowlevel.checkpoint()
            return call.data
        finally:
            self.running -= 1


# Concurrency.


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_than_so_many_run_and_they_come_in_turn(
    met: ConnectedNodes, limit: int
) -> None:
    counter = Counter()
    met.server.on_call("work", concurrency=limit)(counter.handle)
    met.server.on_call("free")(lambda call: call.data)
    async with create_task_group() as tasks:
        outcomes = [
            await started(tasks, lambda number=number: met.peer.call("work", number))  # type: ignore[misc]  # bound now
            for number in range(10)
        ]
        await eventually(lambda: met.back.running_calls == 10)
        assert set(counter.began) == set(range(limit))
        assert await met.peer.call("free", 1, timeout=5) == 1
        counter.finish.set()
    assert outcomes == [[number] for number in range(10)]
    # Slots go to the first in line; trio runs those that got one together in any order.
    for place, number in enumerate(counter.began):
        assert isinstance(number, int)
        assert abs(place - number) < limit
    assert counter.most == limit
    assert met.back.running_calls == 0


async def test_peers_share_the_limit() -> None:
    counter = Counter()
    async with meeting() as met, new_node() as other:
        peer, back = await connect_nodes(other, met.server)
        met.server.on_call("work", concurrency=2)(counter.handle)
        async with create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(met.peer.call, "work")
                tasks.start_soon(peer.call, "work")
            await eventually(lambda: met.back.running_calls + back.running_calls == 10)
            await settled()
            assert counter.running == 2
            # Who goes away leaves its slots to the others.
            counter.finish.set()
        assert counter.most == 2
        assert len(counter.began) == 10


async def test_a_connection_that_ends_frees_its_slots() -> None:
    counter = Counter()
    async with meeting() as met, new_node() as other:
        peer, _ = await connect_nodes(other, met.server)
        met.server.on_call("work", concurrency=1)(counter.handle)
        async with create_task_group() as tasks:
            running = await started(tasks, lambda: met.peer.call("work", "first"))
            waiting = await started(tasks, lambda: met.peer.call("work", "second"))
            last = await started(tasks, lambda: peer.call("work", "third"))
            assert counter.began == ["first"]
            met.peer.driver.ended()
            await eventually(lambda: counter.began == ["first", "third"])
            counter.finish.set()
            await eventually(lambda: bool(last))
        assert last == ["third"]
        assert isinstance(running[0], PeerClosedError)
        assert isinstance(waiting[0], PeerClosedError)


async def test_the_deadline_counts_in_line(met: ConnectedNodes) -> None:
    counter = Counter()
    met.server.on_call("work", concurrency=1)(counter.handle)
    async with create_task_group() as tasks:
        await started(tasks, lambda: met.peer.call("work", 1))
        with pytest.raises(CallTimeout):
            await met.peer.call("work", 2, timeout=0.03)
        # Also if the caller has no timeout: the server answers.
        outcome = await started(tasks, lambda: met.peer.call("work", 3, timeout=0.05))
        asking = met.peer.outgoing
        for call in list(asking.waiting.by_id.values()):
            call.slot.discard(call)
        await eventually(lambda: bool(outcome))
        assert isinstance(outcome[0], CallTimeout)
        assert counter.began == [1]
        counter.finish.set()
    assert await met.peer.call("work", 4, timeout=5) == 4


async def test_streamed_answers_hold_their_slot_while_they_are_read(met: ConnectedNodes) -> None:
    @met.server.on_call("items", concurrency=1)
    async def items(call: Call) -> AsyncIterator[object]:
        for _ in range(100):
            yield call.data

    async with create_task_group() as tasks:
        async with met.peer.call_stream("items", 1, window=200) as answer:
            assert await anext(answer) == 1
            waiting = await started(tasks, lambda: read(met.peer))
            assert not waiting
        await eventually(lambda: bool(waiting))
    assert waiting == [[2] * 100]


@pytest.mark.slow
async def test_who_reads_no_answers_waits_without_a_slot() -> None:
    began: list[object] = []
    large, limit = 256 * 1024, 2
    async with FaultyLink() as link, meeting() as met, new_node() as other:
        deaf, _ = await connect_nodes(other, met.server, link=link)

        @met.server.on_call("large", concurrency=limit)
        async def answer(call: Call) -> bytes:
            began.append(call.data)
            await anyio.lowlevel.checkpoint()
            return bytes(large)

        async with create_task_group() as tasks:
            link.to_client.stall()
            answers = [await started(tasks, lambda: deaf.call("large", 1)) for _ in range(60)]
            await settled()
            # The data that the node may hold for a peer, the data in transit, and the handlers that
            # ran.
            most = NodeConfig().write_buffer // large + 8 + limit
            assert began.count(1) <= most < 60
            assert await met.peer.call("large", 2, timeout=5) == bytes(large)
            link.to_client.resume()
            await eventually(lambda: all(answers))
        assert began.count(1) == 60


async def read(peer: Peer) -> list[object]:
    async with peer.call_stream("items", 2) as answer:
        return [item async for item in answer]


async def test_streams_wait_for_a_slot_too(met: ConnectedNodes) -> None:
    began: list[str] = []
    finish = anyio.Event()

    @met.server.on_stream("work.*", concurrency=1)
    async def work(stream: Stream) -> None:
        began.append(stream.label)
        await finish.wait()
        await stream.send(b"done")

    streams = []
    for number in range(3):
        streams.append(met.peer.open_stream(f"work.{number}"))
        await eventually(lambda: len(met.back.streams) == len(streams))
        await settled()
    assert began == ["work.0"]
    streams[1].reset()
    finish.set()
    for stream in (streams[0], streams[2]):
        assert await stream.receive() == b"done"
        await stream.aclose()
    # The one that was reset had its turn too: a handler learns it from its stream.
    assert began == ["work.0", "work.1", "work.2"]


# Roles of the connection.


PAIRS = [(ours, theirs) for ours in ROLES for theirs in ROLES]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
async def test_what_is_not_for_these_roles_is_code_22(ours: str, theirs: str) -> None:
    actual = supercategory(ours, theirs)
    async with meeting(client=config(role=ours), server=config(role=theirs)) as met:
        for only in Supercategory:
            met.server.on_call(f"only {only}", supercategories=[only])(lambda call: "fine")
            met.server.on_stream(f"only {only}", supercategories=[only])(greet)
        for only in Supercategory:
            expected = 0 if only is actual else ResultCode.WRONG_SUPERCATEGORY
            assert await code_of(lambda only=only: met.peer.call(f"only {only}")) == expected  # type: ignore[misc]  # bound now
            stream = met.peer.open_stream(f"only {only}")
            assert await code_of(stream.receive) == expected
        assert met.peer.is_open


async def greet(stream: Stream) -> None:
    await stream.send(b"hello")


async def code_of(ask: Callable[[], Any]) -> int:
    try:
        await ask()
    except (CallRefused, StreamResetError) as error:
        return error.code
    return 0


async def test_the_order_of_reasons() -> None:
    """The checks: no handler, then roles, then no capacity; `allow` comes last."""
    asked: list[str] = []

    def allow(peer: Peer, name: str) -> bool:
        asked.append(name)
        return False

    async with meeting() as met:
        options: dict[str, Any] = {"allow": allow}
        met.server.on_call("all", **options)(lambda call: 1)
        met.server.on_call("c2s", supercategories=[Supercategory.CLIENT_TO_SERVER], **options)(
            lambda call: 1
        )
        call = met.peer.call
        assert await code_of(lambda: call("nobody")) == ResultCode.TOPIC_NOT_FOUND
        assert await code_of(lambda: call("c2s")) == ResultCode.WRONG_SUPERCATEGORY
        assert await code_of(lambda: call("all")) == ResultCode.NOT_AUTHORISED
        met.back.live.draining = True
        assert await code_of(lambda: call("nobody")) == ResultCode.TOPIC_NOT_FOUND
        assert await code_of(lambda: call("c2s")) == ResultCode.WRONG_SUPERCATEGORY
        assert await code_of(lambda: call("all")) == ResultCode.OVERLOADED
        assert asked == ["all"]


# Patterns.


async def test_one_handler_for_many_names(met: ConnectedNodes) -> None:
    @met.server.on_call("*")
    async def any_call(call: Call) -> str:
        return call.topic

    @met.server.on_call("a.*")
    async def under_a(call: Call) -> list[str]:
        return [call.topic]

    @met.server.on_stream("*")
    async def any_stream(stream: Stream) -> None:
        await stream.send(stream.label.encode())

    assert await met.peer.call("") == ""
    assert await met.peer.call("x") == "x"
    assert await met.peer.call("a.x") == ["a.x"]
    assert await met.peer.open_stream("y").receive() == b"y"
    # Reserved names match no pattern.
    with pytest.raises(StreamResetError) as caught:
        await met.peer.open_stream("topic:x").receive()
    assert caught.value.code == CloseCode.REFUSED
