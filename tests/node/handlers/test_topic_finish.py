"""The end of a topic: every subscriber gets all notes, and the publisher is informed."""

import anyio
import pytest

from parley._node.errors import StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FakeClock
from tests.inspection import stream_id_of
from tests.node.network import meeting

pytestmark = pytest.mark.anyio

COUNT = 2_000
PATIENCE = 10.0


async def test_finish_waits_until_a_slow_subscriber_has_all() -> None:
    with anyio.fail_after(PATIENCE):
        async with meeting() as met:
            topic = met.server.topic("t", buffer=2**24, patience=5)
            async with met.peer.subscribe("t", window=1_000) as sub, anyio.create_task_group() as g:
                finished = anyio.Event()

                async def publish() -> None:
                    for number in range(COUNT):
                        await topic.publish(number)
                    await topic.finish()
                    finished.set()

                g.start_soon(publish)
                await topic.until(lambda: not topic.subscribers)
                notes = []
                async for note in sub:
                    notes.append(note)
                    if len(notes) == COUNT // 10:
                        assert not finished.is_set()
                assert notes == list(range(COUNT))
                await finished.wait()
            assert await met.peer.ping() < 5


@pytest.mark.parametrize("leaving", ["unsubscribe", "cut", "reset"])
async def test_finish_does_not_wait_for_who_is_gone(leaving: str) -> None:
    with anyio.fail_after(PATIENCE):
        async with meeting() as met, anyio.create_task_group() as tasks:
            topic = met.server.topic("t", buffer=2**24, slow="drop-oldest", patience=0)
            sub = met.peer.subscribe("t", window=1)
            await sub.__aenter__()
            for number in range(COUNT):
                await topic.publish(number)
            tasks.start_soon(topic.finish)
            await anyio.wait_all_tasks_blocked()
            if leaving == "cut":
                await met.peer.close()
            elif leaving == "reset":
                met.peer.topics.abandon(stream_id_of(sub))
            else:
                await sub.__aexit__(None, None, None)


async def test_finish_without_subscribers_returns() -> None:
    async with meeting() as met:
        topic = met.server.topic("t")
        await topic.publish("it has no receiver")
        with anyio.fail_after(PATIENCE):
            await topic.finish()
            async with met.peer.subscribe("t") as sub:  # a new one may follow
                await topic.publish("heard")
                assert await anext(sub) == "heard"
                await topic.finish()
                assert [note async for note in sub] == []


async def test_until_sees_who_comes_and_goes() -> None:
    async with meeting() as met:
        topic: Topic = met.server.topic("t")
        seen: list[int] = []

        async def watch() -> None:
            await topic.until(lambda: bool(topic.subscribers))
            seen.append(len(topic.subscribers))
            await topic.until(lambda: not topic.subscribers)
            seen.append(len(topic.subscribers))

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                async with met.peer.subscribe("t"):
                    pass
    assert seen == [1, 0]


async def test_finish_gives_up_who_takes_nothing() -> None:
    """A subscriber without progress loses its subscription; one that reads on does not."""
    clock = FakeClock()
    async with meeting(clock=clock) as met, anyio.create_task_group() as tasks:
        topic = met.server.topic("t", buffer=2**24, patience=0)
        note = b"x" * 50_000  # an event each
        async with met.peer.subscribe("t", window=2_000) as sub:
            for _ in range(100):
                await topic.publish(note)
            tasks.start_soon(topic.finish, 20.0)
            await clock.tick(15)
            for _ in range(10):
                assert await anext(sub) == note
            await clock.tick(15)  # it took some within 20 s
            assert topic.dropped == 0
            await clock.tick(15)
            with pytest.raises(StreamResetError) as lost:
                assert [note async for note in sub] == []
        assert lost.value.code == CloseCode.SLOW_CONSUMER
        assert 80 <= topic.dropped <= 90
        assert await met.peer.ping() < 5
