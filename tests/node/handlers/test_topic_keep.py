"""Topics that remember, end to end: what comes first, where it goes on, what is missing."""

from contextlib import suppress
from random import Random  # noqa: TID251 - the same random numbers every time
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley import Peer, TopicPosition
from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._node.errors import CallRefused, ConfigError, PeerClosedError
from parley._node.messaging.kept import KEEP_BYTES, LEAST_KEEP_BYTES, Beginning
from parley._node.messaging.pending import OutgoingCall
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import NOTIFY, SIM, SUBSCRIBE, ResultCode
from parley._node.protocol.limits import EVENT_COST, Limits
from tests.node.gateways.simproto_sides import served
from tests.node.network import Meeting, eventually, introduce, meeting, new_node

pytestmark = pytest.mark.anyio


async def take(sub: Subscription, count: int) -> list[Any]:
    """So many notes."""
    return [await anext(sub) for _ in range(count)]


# Options and bounds.


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep_bytes": LEAST_KEEP_BYTES - 1}])
async def test_wrong_options(options: dict[str, Any], anyio_backend: str) -> None:
    with pytest.raises(ConfigError):
        new_node().topic("x", **options)


async def test_what_is_kept_is_bounded_and_counted(met: Meeting) -> None:
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
    assert met.server.topic("many", keep=2**40)._fanout.kept.most == KEEP_BYTES // EVENT_COST  # type: ignore[union-attr]  # it remembers


async def test_a_note_beyond_the_bytes_leaves_nothing(met: Meeting) -> None:
    topic = met.server.topic("x", keep_bytes=LEAST_KEEP_BYTES)
    await topic.publish(1)
    await topic.publish(bytes(2_000))
    assert (topic.kept, topic.kept_bytes) == (0, 0)
    async with met.peer.subscribe("x") as sub:
        await topic.publish(3)
        assert await anext(sub) == 3
        assert (sub.number, sub.gaps) == (3, 0)


# Beginning and going on.


async def test_what_is_kept_comes_first_and_then_what_is_new(met: Meeting) -> None:
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


async def test_it_goes_on_where_it_was(met: Meeting) -> None:
    topic = met.server.topic("x", keep=10)
    async with met.peer.subscribe("x", "hello") as sub:
        for note in range(1, 6):
            await topic.publish(note)
        assert await take(sub, 2) == [1, 2]
        assert sub.position == topic.position  # three have come and wait
        assert sub.number == 2
    position = sub.position
    assert position is not None
    assert position.number == 2  # nobody will read the others there
    async with met.peer.subscribe("x", after=position) as again:
        assert again.recovered
        assert await take(again, 3) == [3, 4, 5]
        await topic.publish(6)
        assert await anext(again) == 6
    async with met.peer.subscribe("x", after=again.position) as nothing_missed:
        assert nothing_missed.recovered
        await topic.publish(7)
        assert await anext(nothing_missed) == 7


async def test_what_was_forgotten_meanwhile_is_counted(met: Meeting) -> None:
    topic = met.server.topic("x", keep=3)
    await topic.publish(1)
    async with met.peer.subscribe("x") as sub:
        assert await anext(sub) == 1
    for note in range(2, 10):
        await topic.publish(note)
    async with met.peer.subscribe("x", after=sub.position) as again:
        assert (again.recovered, again.gaps, again.number) == (False, 5, 6)
        assert await take(again, 3) == [7, 8, 9]


async def test_another_epoch_begins_with_the_oldest_that_is_kept(met: Meeting) -> None:
    topic = met.server.topic("x", keep=3)
    for note in range(5):
        await topic.publish(note)
    here = topic.position
    assert here is not None
    async with met.peer.subscribe("x", after=TopicPosition(bytes(8), 9)) as sub:
        assert (sub.recovered, sub.number, sub.gaps) == (False, 2, 0)
        assert await take(sub, 3) == [2, 3, 4]
        assert sub.position == here


async def test_a_position_that_no_note_has_yet(met: Meeting) -> None:
    topic = met.server.topic("x", keep=3)
    for note in range(1, 6):
        await topic.publish(note)
    here = topic.position
    assert here is not None
    async with met.peer.subscribe("x", after=TopicPosition(here.epoch, 6)) as sub:
        assert not sub.recovered
        await topic.publish(6)
        await topic.publish(7)
        assert await anext(sub) == 7  # it has the others, as it said


async def test_a_topic_without_memory_has_no_place_to_go_on_from(met: Meeting) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x", after=TopicPosition(bytes(8), 5)) as sub:
        await topic.publish(1)
        assert await anext(sub) == 1
        assert (sub.number, sub.recovered, sub.gaps, sub.position) == (0, False, 0, None)


async def test_unread_notes_stay_when_the_connection_is_over(met: Meeting) -> None:
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
        peer, _ = await introduce(met.client, met.server)
        async with peer.subscribe("x", after=position) as again:
            assert again.recovered
            assert await anext(again) == 6
        assert await take(sub, 4) == [2, 3, 4, 5]
        with pytest.raises(PeerClosedError):
            await anext(sub)


# Subscribers that do not keep up.


async def test_who_does_not_keep_up_reads_what_is_kept(met: Meeting) -> None:
    topic = met.server.topic("x", keep=10_000, buffer=1_024, patience=0)
    async with met.peer.subscribe("x", window=1) as sub:
        for note in range(1_000):
            await topic.publish(note)
        (subscriber,) = topic.subscribers
        assert subscriber.waiting_bytes <= 1_024
        assert await take(sub, 1_000) == list(range(1_000))
        assert (sub.gaps, sub.dropped, topic.dropped) == (0, 0, 0)


async def test_who_lags_beyond_what_is_kept_misses_what_it_is_told(met: Meeting) -> None:
    topic = met.server.topic("x", keep=5, buffer=1_024, patience=0)
    async with met.peer.subscribe("x", window=1) as sub:
        for note in range(1, 1_001):
            await topic.publish(note)
        got: list[Any] = []
        while sub.number < 1_000:
            got.append(await anext(sub))
            assert got[-1] == sub.number
        assert got == sorted(set(got))
        assert sub.gaps == 1_000 - len(got) == topic.dropped
        await topic.publish("live")
        assert await anext(sub) == "live"


async def test_a_subscriber_that_is_behind_keeps_nobody_waiting(met: Meeting) -> None:
    topic = met.server.topic("x", keep=10_000, buffer=1_024, patience=60)
    for note in range(1_000):
        await topic.publish([note, bytes(1_000)])
    async with met.peer.subscribe("x", window=1) as sub:
        assert topic.subscribers[0].behind > 500
        with anyio.fail_after(5):
            for note in range(1_000, 1_200):
                await topic.publish([note, bytes(1_000)])
        assert [note[0] for note in await take(sub, 1_200)] == list(range(1_200))


async def test_finish_goes_after_what_is_kept(met: Meeting) -> None:
    topic = met.server.topic("x", keep=10_000)
    for note in range(2_000):
        await topic.publish(note)
    async with met.peer.subscribe("x", window=1) as sub:
        topic.close()
        await topic.publish("too late")
        assert [note async for note in sub] == list(range(2_000))


# What publishers and subscribers may not say.


async def asked(peer: Peer, payload: bytes) -> int:
    """The code that a Subscribe of these bytes is answered with."""
    done = anyio.Event()
    call = peer.asking.ask(OutgoingCall(done.set), SIM, SUBSCRIBE, payload, 0.0, None)
    await done.wait()
    return call.code


async def test_half_a_position_is_malformed(met: Meeting) -> None:
    met.server.topic("x", keep=1)
    wrong: list[dict[int, Encodable]] = [
        {keys.TOPIC_EPOCH: bytes(8)},
        {keys.NUMBER: 1},
        {keys.TOPIC_EPOCH: bytes(7), keys.NUMBER: 1},
        {keys.TOPIC_EPOCH: bytes(8), keys.NUMBER: -1},
    ]
    for cells in wrong:
        assert await asked(met.peer, encode({keys.TOPIC: "x", **cells})) == ResultCode.MALFORMED


async def test_the_answer_has_room_for_where_it_begins(anyio_backend: str) -> None:
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
            assert not met.back.topics._feeds


# A publisher that says anything.


def say(met: Meeting, cells: dict[int, Encodable]) -> None:
    """The publisher sends a Notify of these cells on the stream of its only subscription."""
    (stream,) = met.back.topics._feeds
    met.back.core.send(stream, 0, SIM, NOTIFY, encode(cells))


async def test_numbers_of_a_publisher_that_says_anything(met: Meeting) -> None:
    met.server.topic("x", keep=10)
    async with met.peer.subscribe("x") as sub:
        numbers = 5, 3, 2**64 - 1, 0, "one", None, 7
        for number in numbers:
            cells: dict[int, Encodable] = {keys.DATA: number}
            say(met, cells if number is None else {**cells, keys.NUMBER: number})
        met.back.topics._feeds.copy().popitem()[1].finish()
        assert [note async for note in sub] == [5, 2**64 - 1]
        assert (sub.number, sub.gaps) == (2**64 - 1, 2**64 - 3)
        assert sub.inbox.malformed == 3
        assert await met.peer.ping() > 0


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
    met: Meeting, monkeypatch: pytest.MonkeyPatch, cells: dict[int, Encodable]
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


async def test_each_note_once_over_connections_that_are_cut(met: Meeting) -> None:
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
            peer, _ = await introduce(met.client, met.server)
    assert [note[0] for note in got] == list(range(count))
    assert topic.dropped == 0


async def test_guests_of_other_dialects_are_served_as_before(anyio_backend: str) -> None:
    async with served() as sides:
        topic = sides.node.topic("remembers", keep=10)
        await topic.publish(b"before")
        async with sides.client.subscribe("remembers") as sub:
            await topic.publish(b"now")
            assert await anext(sub) == b"now"
