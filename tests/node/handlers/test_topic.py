"""Topics as an application publishes them: options, publishing, slow subscribers, the end."""

from collections.abc import AsyncIterator, Coroutine
from typing import Any

import anyio
import pytest

from parley import Node, ParleyError, Peer
from parley._lbm.errors import LbmEncodeError
from parley._node.errors import ConfigError, PeerClosedError, StreamResetError
from parley._node.handlers.topic import PATIENCE, Topic
from parley._node.messaging.fanout import TURN_SIZE
from parley._node.messaging.notes import encode_note
from parley._node.messaging.topic_history import LEAST_KEEP_BYTES
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import NOTES, NOTIFY, SIM, CloseCode
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.limits import Limits
from parley._node.testing import ConnectedNodes, FakeClock, connect_nodes, connected_nodes
from tests.node.network import eventually, meeting, new_node, nothing_left, started

pytestmark = pytest.mark.anyio

BIG = bytes(20_000)


@pytest.fixture(params=["memory", "tcp"])
async def met(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting(transport=request.param) as met:
        yield met


async def take(sub: Subscription, count: int) -> list[Any]:
    """So many notes."""
    return [await anext(sub) for _ in range(count)]


async def drained(sub: Subscription) -> tuple[list[Any], Exception]:
    """All notes that still come, and what ended them."""
    got: list[Any] = []
    while True:
        try:
            got.append(await anext(sub))
        except (StopAsyncIteration, StreamResetError, PeerClosedError) as error:
            return got, error


def spy_on_sent(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Type (category, subcategory) of each event that a peer is sent from now on."""
    sent: list[tuple[int, int]] = []
    send = peer.core.send

    def spy(stream: int, async_id: int, category: int, subcategory: int, *rest: Any, **more: Any):  # type: ignore[no-untyped-def]  # forwards its arguments
        sent.append((category, subcategory))
        return send(stream, async_id, category, subcategory, *rest, **more)

    monkeypatch.setattr(peer.core, "send", spy)
    return sent


def at_once(coroutine: Coroutine[Any, Any, object]) -> bool:
    """Whether it ends without a yield to the loop; if not, the loop is confused."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    return False


# Options.


@pytest.mark.parametrize(
    "options",
    [
        {"slow": "wait"},
        {"buffer": 1_023},
        {"patience": -1},
        {"patience": float("nan")},
        {"supercategories": []},
        {"allow": [""]},
        {"keep": 0},
        {"keep_bytes": LEAST_KEEP_BYTES - 1},
    ],
)
async def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        new_node().topic("x", **options)


async def test_a_topic_is_one_name_and_made_once() -> None:
    node = new_node()
    topic = node.topic("x")
    assert node.topics == {"x": topic}
    with pytest.raises(ParleyError, match="already exists"):
        node.topic("x")
    with pytest.raises(ConfigError, match="use patterns with on_subscribe"):
        node.topic("x.*")


# Publishing.


async def test_a_note_without_an_encoding_is_not_published(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        with pytest.raises(LbmEncodeError):
            await topic.publish({1, 2})  # type: ignore[arg-type]  # what the test is about
        with pytest.raises(LbmEncodeError):
            await topic.publish(1, headers={"a": 2**64})
        with pytest.raises(LbmEncodeError):
            await topic.publish(1, headers={5: 1})  # type: ignore[dict-item]  # likewise
        await topic.publish("fine")
        assert await anext(sub) == "fine"
        assert met.back.is_open


async def test_a_note_that_no_payload_can_hold() -> None:
    async with meeting(limits=Limits(max_payload=4_096)) as met:
        topic = met.server.topic("x")
        async with met.peer.subscribe("x") as sub:
            with pytest.raises(PayloadTooLargeError):
                await topic.publish(bytes(4_096))
            with pytest.raises(PayloadTooLargeError):
                await topic.publish(1, headers={"a": bytes(4_096)})
            await topic.publish(bytes(4_000))
            assert await anext(sub) == bytes(4_000)
            assert topic.dropped == 0


async def test_a_note_too_large_for_one_subscriber() -> None:
    async with (
        new_node() as server,
        new_node() as wide,
        new_node(limits=Limits(max_payload=4_096)) as narrow,
    ):
        topic = server.topic("x")
        to_wide, _ = await connect_nodes(wide, server)
        to_narrow, _ = await connect_nodes(narrow, server)
        async with to_wide.subscribe("x") as all_of_it, to_narrow.subscribe("x") as some_of_it:
            for note in (1, bytes(5_000), 2):
                await topic.publish(note)
            assert await take(all_of_it, 3) == [1, bytes(5_000), 2]
            assert await take(some_of_it, 2) == [1, 2]
            assert (some_of_it.dropped, all_of_it.dropped) == (1, 0)
            assert sorted(subscriber.dropped for subscriber in topic.subscribers) == [0, 1]
            assert topic.dropped == 1


async def test_publishing_before_the_node_runs() -> None:
    node = new_node()
    topic = node.topic("x")
    with pytest.raises(ParleyError, match="not running"):
        await topic.publish(1)
    async with node, new_node() as client:
        peer, _ = await connect_nodes(client, node)
        async with peer.subscribe("x") as sub:
            await topic.publish(2)
            assert await anext(sub) == 2


@pytest.mark.pure
async def test_notes_of_one_turn_travel_as_one_event(
    met: ConnectedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        sent = spy_on_sent(met.back, monkeypatch)
        for note in range(500):
            await topic.publish(note)
        batch = await sub.next_batch()
        assert batch == list(range(500))
        assert sent == [(SIM, NOTES)]
        await topic.publish("alone")
        assert await anext(sub) == "alone"
        assert sent == [(SIM, NOTES), (SIM, NOTIFY)]


async def test_publish_yields_only_when_much_was_published(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    note = bytes(1_000)
    below = TURN_SIZE // (len(encode_note(note)) + 64)
    assert all(at_once(topic.publish(note)) for _ in range(below))
    others = []

    async def other() -> None:
        others.append(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert others == []
        await topic.publish(note)
        assert others == [1]
        assert at_once(topic.publish(note))


# Who does not keep up.


def slow_pair(topic_options: dict[str, Any], server: Node) -> Topic:
    return server.topic("x", **{"buffer": 100_000, "patience": 0, **topic_options})


async def test_a_slow_subscriber_loses_its_subscription_and_nothing_else(
    met: ConnectedNodes,
) -> None:
    topic = slow_pair({}, met.server)
    met.server.on_call("echo")(lambda call: call.data)
    async with new_node() as other:
        fast_peer, _ = await connect_nodes(other, met.server)
        async with fast_peer.subscribe("x") as fast, met.peer.subscribe("x", window=1_000) as slow:
            for number in range(100):
                await topic.publish([number, BIG])
                assert (await anext(fast))[0] == number  # type: ignore[index]  # it is a list
            (left,) = topic.subscribers
            assert left.peer.node_id == other.node_id
            got, error = await drained(slow)
            assert isinstance(error, StreamResetError)
            assert error.code == CloseCode.SLOW_CONSUMER
            assert f"{topic.dropped} notes were not read in time" in str(error)
            assert slow.dropped == topic.dropped > 0
            assert len(got) < 10
            assert met.peer.is_open
            assert await met.peer.call("echo", 5) == 5
            async with met.peer.subscribe("x") as again:
                await topic.publish("new")
                assert await anext(again) == "new"


async def test_a_slow_subscriber_loses_its_oldest_notes_and_nothing_else(
    met: ConnectedNodes,
) -> None:
    topic = slow_pair({"slow": "drop-oldest"}, met.server)
    met.server.on_call("echo")(lambda call: call.data)
    async with new_node() as other:
        fast_peer, _ = await connect_nodes(other, met.server)
        async with fast_peer.subscribe("x") as fast, met.peer.subscribe("x", window=1_000) as slow:
            for number in range(100):
                await topic.publish([number, BIG])
                assert (await anext(fast))[0] == number  # type: ignore[index]  # it is a list
            assert await met.peer.call("echo", 5) == 5
            slow_one = next(s for s in topic.subscribers if s.peer is met.back)
            assert slow_one.waiting_bytes <= 100_000
            numbers = []
            async for note in slow:
                assert isinstance(note, list)
                numbers.append(note[0])
                if note[0] == 99:
                    break
            assert numbers == sorted(set(numbers))
            assert slow.dropped == slow_one.dropped == topic.dropped == 100 - len(numbers) > 0
            assert fast.dropped == 0


# Patience, on a clock of the test's.


async def test_publish_waits_for_a_slow_subscriber_once_and_not_for_long() -> None:
    clock = FakeClock()
    async with connected_nodes(clock=clock) as nodes, anyio.create_task_group() as tasks:
        topic = nodes.server.topic("x", buffer=100_000, slow="drop-oldest")

        async def publish(count: int) -> None:
            for _ in range(count):
                await topic.publish(BIG)

        async with nodes.peer.subscribe("x", window=1_000) as sub:
            published = await started(tasks, lambda: publish(20))
            assert published == []  # more than half of its buffer waits
            await clock.tick(PATIENCE * 0.9)
            assert published == []
            await clock.tick(PATIENCE * 0.2)
            assert published == [None]
            # It is behind, and the publisher no longer waits for it.
            began = clock.now()
            await publish(20)
            assert clock.now() == began
            # It caught up: it is waited for as before.
            while topic.subscribers[0].waiting_bytes:
                await anext(sub)
            published = await started(tasks, lambda: publish(20))
            assert published == []
            while not published:
                await anext(sub)  # this time it reads, and time need not pass
            assert clock.now() == began


async def test_publish_goes_on_when_the_slow_subscriber_leaves() -> None:
    clock = FakeClock()
    async with connected_nodes(clock=clock) as nodes, anyio.create_task_group() as tasks:
        topic = nodes.server.topic("x", buffer=100_000, patience=1e6)

        async def publish() -> None:
            for _ in range(30):
                await topic.publish(BIG)

        async with nodes.peer.subscribe("x", window=1_000):
            published = await started(tasks, publish)
            assert published == []
        await eventually(lambda: bool(published))
        assert published == [None]
        assert topic.subscribers == []


async def test_publish_that_is_cancelled_has_published() -> None:
    clock = FakeClock()
    async with connected_nodes(clock=clock) as nodes:
        topic = nodes.server.topic("x", buffer=100_000, patience=1e6)
        async with nodes.peer.subscribe("x", window=1_000) as sub:
            sent = 0
            with anyio.move_on_after(0.1):
                while True:
                    sent += 1
                    await topic.publish([sent, BIG])
            assert sent > 2
            assert [note[0] for note in await take(sub, sent)] == list(range(1, sent + 1))
        assert clock.next_timer > 0


SMALL_MEMORY: dict[str, Any] = {
    "peer_memory": 1 << 18,
    "write_buffer": 1 << 16,
    "limits": Limits(1 << 16),
}


@pytest.mark.parametrize(
    ("size", "headers", "buffer", "settings"),
    [
        (0, None, 16_384, {}),
        (300, None, 65_536, {}),
        (300, {"h": "x"}, 65_536, {}),
        (3_000, None, 65_536, {}),
        (0, None, 1 << 22, SMALL_MEMORY),
        (1_000, {"h": "x"}, 1 << 22, SMALL_MEMORY),
    ],
)
async def test_a_patient_publisher_loses_nothing(
    size: int, headers: dict[str, Any] | None, buffer: int, settings: dict[str, Any]
) -> None:
    count = 3_000 if settings else 2 * TURN_SIZE // (size + 64) + 100
    async with new_node(**settings) as server, new_node() as client:
        topic = server.topic("x", buffer=buffer, patience=100)

        async def publish() -> None:
            for number in range(count):
                await topic.publish([number, bytes(size)], headers)

        peer, _ = await connect_nodes(client, server)
        async with peer.subscribe("x", window=5_000) as sub, anyio.create_task_group() as tasks:
            tasks.start_soon(publish)
            assert [note[0] for note in await take(sub, count)] == list(range(count))
            assert (sub.dropped, topic.dropped) == (0, 0)


# The end.


async def test_close_delivers_what_waits_and_then_the_end(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x", window=1_000) as sub:
        for number in range(20):
            await topic.publish([number, BIG])
        topic.close()
        assert topic.subscribers == []
        await topic.publish("too late")
        got = [note[0] async for note in sub if isinstance(note, list)]
        assert got == list(range(20))
        with pytest.raises(StopAsyncIteration):
            await anext(sub)
        assert met.peer.is_open
    # A closed topic may be subscribed to again.
    async with met.peer.subscribe("x") as sub:
        await topic.publish("again")
        assert await anext(sub) == "again"


async def test_a_subscriber_that_dies_is_one_less(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub, anyio.create_task_group() as tasks:
        reading = await started(tasks, lambda: anext(sub))
        await met.peer.close(CloseCode.OVERLOADED)
        await eventually(lambda: not topic.subscribers)
        await topic.publish(1)
        (error,) = reading
        assert isinstance(error, PeerClosedError)


async def test_a_publisher_that_dies_fails_its_readers_with_its_code(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        await topic.publish("last")
        await met.back.close(CloseCode.OVERLOADED, "no more")
        assert await anext(sub) == "last"
        for _ in range(2):
            with pytest.raises(PeerClosedError, match="overloaded") as caught:
                await anext(sub)
            assert caught.value.code == CloseCode.OVERLOADED
        with pytest.raises(PeerClosedError):
            async for _ in sub.batches():
                pass


async def test_what_was_published_just_before_the_node_closes_arrives() -> None:
    async with new_node() as client, new_node() as server:
        topic = server.topic("x")
        peer, _ = await connect_nodes(client, server)
        async with peer.subscribe("x") as sub, anyio.create_task_group() as tasks:
            reading: list[Any] = await started(tasks, lambda: drained(sub))
            for number in range(30):
                await topic.publish([number, BIG])
            await server.aclose()
        ((got, error),) = reading
        assert [note[0] for note in got] == list(range(30))
        assert isinstance(error, PeerClosedError)


@pytest.mark.parametrize("transport", ["memory", "tcp"])
@pytest.mark.slow
async def test_nothing_is_left_of_topics(transport: str) -> None:
    with nothing_left():
        async with meeting(transport=transport) as met:
            topic = slow_pair({"slow": "drop-oldest"}, met.server)
            for _ in range(3):
                async with met.peer.subscribe("x", window=1_000) as sub:
                    for number in range(20):
                        await topic.publish([number, BIG])
                    await anext(sub)
            sub = met.peer.subscribe("x")
            await sub.__aenter__()
            await topic.publish(1)
        del sub, topic, met
