"""Topics that peers publish: permissions, refusals, and order."""

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from parley import Peer
from parley._node.errors import CallRefused, ConfigError, ParleyError
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.peer.idempotency import IdempotencyKey
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import Limits
from parley._node.testing import ConnectedNodes, connect_nodes
from tests.node.network import eventually, meeting, new_node

pytestmark = pytest.mark.anyio


def anybody(peer: object, name: str) -> bool:
    return True


async def refused(peer: Peer, data: Any = 1, **options: Any) -> int:
    """The code by which publishing to `room` is refused."""
    with pytest.raises(CallRefused) as error:
        await peer.publish("room", data, **options)
    return error.value.code


# Publishing.


async def test_writers_publish_in_one_order(met: ConnectedNodes) -> None:
    topic = met.server.topic("room", keep=10, writers=anybody)
    other = new_node()
    async with other:
        peer, _ = await connect_nodes(other, met.server)
        async with met.peer.subscribe("room") as ours, peer.subscribe("room") as theirs:
            assert await met.peer.publish("room", "one") == 1
            assert await topic.publish("two") == 2
            assert await peer.publish("room", {"three": 3}, headers={"from": "other"}) == 3
            for sub in (ours, theirs):
                assert [await anext(sub) for _ in range(3)] == ["one", "two", {"three": 3}]
                assert (sub.number, dict(sub.headers)) == (3, {"from": "other"})


async def test_a_writer_need_not_read_and_a_reader_need_not_write(met: ConnectedNodes) -> None:
    node_id = met.client.node_id
    told: list[Any] = []
    topic = met.server.topic("room", allow=["reader"], writers=[node_id])
    topic.tap(lambda data, headers: told.append(data))
    assert await met.peer.publish("room", 1) is None
    assert told == [1]
    with pytest.raises(CallRefused) as error:
        await met.peer.subscribe("room").__aenter__()
    assert error.value.code == ResultCode.NOT_AUTHORISED


async def test_once_is_published_once_over_sessions(met: ConnectedNodes) -> None:
    topic = met.server.topic("room", keep=10, writers=anybody)
    peer, _ = await connect_nodes(met.client, met.server)  # It learns that the node keeps notes.
    key = IdempotencyKey.of(True)
    assert await peer.publish("room", "x", once=key) == 1
    await peer.close()
    again, _ = await connect_nodes(met.client, met.server)
    assert await again.publish("room", "x", once=key) == 1
    assert topic.kept == 1


async def test_each_writer_waits_for_slow_subscribers(met: ConnectedNodes) -> None:
    """Or calls that come together would have them lose what one after another does not."""
    topic = met.server.topic("room", writers=anybody, buffer=600_000, patience=60)
    async with met.peer.subscribe("room", window=1) as sub, anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(met.peer.publish, "room", [number, bytes(10_000)])
        await eventually(lambda: topic.subscribers[0].waiting_bytes > 300_000)
        assert topic.subscribers[0].waiting_bytes <= 600_000
        got: list[Any] = [await anext(sub) for _ in range(100)]
        assert sorted(number for number, _ in got) == list(range(100))
    assert topic.dropped == 0


async def test_a_publication_that_is_cancelled_holds_up_nobody(met: ConnectedNodes) -> None:
    topic = met.server.topic("room", writers=anybody, buffer=600_000, patience=60)
    async with met.peer.subscribe("room", window=1), anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(met.peer.publish, "room", bytes(10_000))
        await eventually(lambda: topic.subscribers[0].waiting_bytes > 300_000)
        tasks.cancel_scope.cancel()
    assert await met.peer.publish("room", 1) is None


# Who may not, and what.


async def test_who_may_not_write(met: ConnectedNodes) -> None:
    met.server.topic("closed")
    topic = met.server.topic("room", keep=10, writers=["writer"])
    assert await refused(met.peer) == ResultCode.NOT_AUTHORISED
    for name in ("closed", "nowhere"):
        with pytest.raises(CallRefused) as error:
            await met.peer.publish(name, 1)
        assert error.value.code == ResultCode.TOPIC_NOT_FOUND
    met.server.roles.assign(met.client.node_id, "writer")
    assert await met.peer.publish("room", 1) == 1
    met.server.roles.revoke(met.client.node_id)
    assert await refused(met.peer) == ResultCode.NOT_AUTHORISED
    assert topic.kept == 1


async def test_what_is_too_long_or_says_too_much() -> None:
    async with meeting(server=None, limits=Limits(max_payload=4_096)) as met:
        topic = met.server.topic("room", keep=10, writers=anybody)
        deep: Any = 1
        for _ in range(15):
            deep = [deep]
        assert await refused(met.peer, deep) == ResultCode.MALFORMED
        assert await refused(met.peer, 1, headers={DROPPED_HEADER: 5}) == ResultCode.MALFORMED
        assert topic.kept == 0


@dataclass
class Said:
    text: str


async def test_typed_topics_hold(met: ConnectedNodes) -> None:
    met.server.topic("room", Said, keep=10, writers=anybody)
    async with met.peer.subscribe("room", returns=Said) as sub:
        for wrong in ({"text": 5}, {}, "text", None):
            assert await refused(met.peer, wrong) == ResultCode.MALFORMED
        assert await met.peer.publish("room", Said("hello")) == 1
        assert await met.peer.publish("room", {"text": "hello", "more": 5}) == 2
        assert [await anext(sub), await anext(sub)] == [Said("hello"), Said("hello")]


# Reserved names.


@pytest.mark.parametrize("name", ["publish:room", "publish:*", "publish:"])
def test_calls_of_these_names_are_reserved(name: str) -> None:
    node = new_node()
    with pytest.raises(ParleyError, match="reserved"):
        node.on_call(name)(lambda call: None)


async def test_no_pattern_stands_for_them_but_its_rule_holds(met: ConnectedNodes) -> None:
    met.server.on_call("*", allow=["friend"])(lambda call: "the pattern's")
    met.server.topic("open", keep=1, writers=anybody)
    with pytest.raises(CallRefused) as error:
        await met.peer.publish("room", 1)
    assert error.value.code == ResultCode.TOPIC_NOT_FOUND
    with pytest.raises(CallRefused) as error:
        await met.peer.publish("open", 1)
    assert error.value.code == ResultCode.NOT_AUTHORISED
    met.server.roles.assign(met.client.node_id, "friend")
    assert await met.peer.publish("open", 1) == 1
    assert await met.peer.call("else") == "the pattern's"


def test_wrong_writers_leave_no_topic() -> None:
    node = new_node()
    with pytest.raises(ConfigError):
        node.topic("room", writers=5)  # type: ignore[call-overload]  # the mistake under test
    assert "room" not in node.topics
    node.topic("room", writers=anybody)
