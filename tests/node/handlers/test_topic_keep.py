"""Topics with history, end to end: the first note, where subscribers continue, and missing
notes.
"""

from contextlib import suppress
from random import Random  # noqa: TID251 - the same random numbers every time
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley import TopicPosition
from parley._lbm import keys
from parley._lbm.codec import Encodable
from parley._node.errors import CallRefused, PeerClosedError
from parley._node.messaging.topic_history import LEAST_KEEP_BYTES, Beginning
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import EVENT_COST, Limits
from parley._node.testing import ConnectedNodes, connect_nodes
from tests.node.network import eventually, meeting

pytestmark = pytest.mark.anyio


async def take(sub: Subscription, count: int) -> list[Any]:
    """So many notes."""
    return [await anext(sub) for _ in range(count)]


# Options and bounds.


async def test_what_is_kept_is_bounded_and_counted(met: ConnectedNodes) -> None:
    few, small, plain = (
        met.server.topic("few", keep=3),
        met.server.topic("small", keep_bytes=LEAST_KEEP_BYTES),
        met.server.topic("plain"),
    )
    for number in range(100):
        for topic in (few, small, plain):
            await topic.publish(number)
    assert (few.kept, few.kept_bytes) == (3, 3 * (2 + EVENT_COST))
    assert small.kept == LEAST_KEEP_BYTES // (2 + EVENT_COST)
    assert small.kept_bytes <= LEAST_KEEP_BYTES
    assert (plain.kept, plain.kept_bytes, plain.position) == (0, 0, None)
    assert few.position is not None
    assert few.position.number == 100


# Subscribing and continuing.


async def test_what_is_kept_comes_first_and_then_what_is_new(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep=3)
    for note in range(1, 6):
        await topic.publish(note)
    async with met.peer.subscribe("x") as sub:
        assert (sub.number, sub.recovered, sub.gaps) == (2, False, 0)
        await topic.publish(6, {"a": 1})
        await topic.publish(7)
        assert await take(sub, 3) == [3, 4, 5]
        assert sub.number == 5
        assert await take(sub, 2) == [6, 7]
        assert (sub.number, sub.gaps, sub.position) == (7, 0, topic.position)


async def test_it_goes_on_where_it_was(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep=10)
    async with met.peer.subscribe("x", "hello") as sub:
        for note in range(1, 6):
            await topic.publish(note)
        assert await take(sub, 2) == [1, 2]
        assert sub.position == topic.position  # three have come and wait
        assert sub.number == 2
    position = sub.position
    assert position is not None
    assert position.number == 2  # The other notes there remain unread.
    async with met.peer.subscribe("x", after=position) as again:
        assert again.recovered
        assert await take(again, 3) == [3, 4, 5]
        await topic.publish(6)
        assert await anext(again) == 6
    async with met.peer.subscribe("x", after=again.position) as nothing_missed:
        assert nothing_missed.recovered
        await topic.publish(7)
        assert await anext(nothing_missed) == 7


async def test_a_topic_without_memory_has_no_place_to_go_on_from(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x", after=TopicPosition(bytes(8), 5)) as sub:
        await topic.publish(1)
        assert await anext(sub) == 1
        assert (sub.number, sub.recovered, sub.gaps, sub.position) == (0, False, 0, None)


async def test_unread_notes_stay_when_the_connection_is_over(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep=10)
    async with met.peer.subscribe("x") as sub:
        for note in range(1, 6):
            await topic.publish(note)
        assert await anext(sub) == 1
        await met.back.close()
        await eventually(lambda: not met.client.peers)
        position = sub.position
        assert position == topic.position
        await topic.publish(6)
        peer, _ = await connect_nodes(met.client, met.server)
        async with peer.subscribe("x", after=position) as again:
            assert again.recovered
            assert await anext(again) == 6
        assert await take(sub, 4) == [2, 3, 4, 5]
        with pytest.raises(PeerClosedError):
            await anext(sub)


# Subscribers that do not keep up.


async def test_a_subscriber_that_is_behind_keeps_nobody_waiting(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep=10_000, buffer=1_024, patience=60)
    for note in range(1_000):
        await topic.publish([note, bytes(1_000)])
    async with met.peer.subscribe("x", window=1) as sub:
        assert topic.subscribers[0].behind > 500
        with anyio.fail_after(5):
            for note in range(1_000, 1_200):
                await topic.publish([note, bytes(1_000)])
        assert [note[0] for note in await take(sub, 1_200)] == list(range(1_200))


# Invalid arguments of publishers and subscribers.


async def test_the_answer_has_room_for_where_it_begins() -> None:
    async with meeting(limits=Limits(max_payload=4_096)) as met:
        topic = met.server.topic("x", keep=1)
        topic.on_subscribe(lambda request: bytes(int(str(request.data))))
        for size, fits in ((4_020, True), (4_060, False)):
            sub = met.peer.subscribe("x", size)
            if fits:
                async with sub:
                    assert sub.data == bytes(size)
            else:
                with pytest.raises(CallRefused) as refused:
                    await sub.__aenter__()
                assert refused.value.code == ResultCode.PAYLOAD_TOO_LARGE
            assert not topic.subscribers


# A publisher that sends arbitrary answers.


@pytest.mark.parametrize(
    "cells",
    [
        {keys.NUMBER: 0, keys.RECOVERED: False},
        {keys.TOPIC_EPOCH: bytes(8), keys.RECOVERED: True},
        {keys.TOPIC_EPOCH: bytes(8), keys.NUMBER: 0},
        {keys.RECOVERED: True},
        {keys.TOPIC_EPOCH: bytes(9), keys.NUMBER: 0, keys.RECOVERED: False},
        {keys.TOPIC_EPOCH: bytes(8), keys.NUMBER: "0", keys.RECOVERED: False},
        {keys.TOPIC_EPOCH: bytes(8), keys.NUMBER: 0, keys.RECOVERED: 1},
    ],
)
async def test_an_acceptance_that_says_a_part_of_it(
    met: ConnectedNodes, monkeypatch: pytest.MonkeyPatch, cells: dict[int, Encodable]
) -> None:
    topic = met.server.topic("x", keep=10)
    with monkeypatch.context() as patched:
        patched.setattr(Beginning, "cells", lambda self: cells)
        with pytest.raises(CallRefused) as refused:
            async with met.peer.subscribe("x"):
                pass
    assert refused.value.code == ResultCode.MALFORMED
    await eventually(lambda: not topic.subscribers)  # its stream was reset
    async with met.peer.subscribe("x") as sub:
        assert sub.position == topic.position


# Over connections that are cut.


async def test_each_note_once_over_connections_that_are_cut(met: ConnectedNodes) -> None:
    count, topic = 600, met.server.topic("x", keep=1_000, buffer=2_048)
    draw, peer, got = Random(9), met.peer, list[Any]()
    position: TopicPosition | None = None

    async def publish() -> None:
        for note in range(count):
            await topic.publish([note, bytes(draw.randrange(200))])
            if not draw.randrange(8):
                await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish)
        while len(got) < count:
            async with peer.subscribe("x", window=1_024, after=position) as sub:
                assert sub.recovered is (position is not None)
                for _ in range(min(draw.randrange(60), count - len(got))):
                    got.append(await anext(sub))
                await peer.close()
                await eventually(lambda: not met.client.peers)
                position = sub.position
                with suppress(PeerClosedError):
                    while True:
                        got.append(await anext(sub))
                assert sub.gaps == 0
            peer, _ = await connect_nodes(met.client, met.server)
    assert [note[0] for note in got] == list(range(count))
    assert topic.dropped == 0
