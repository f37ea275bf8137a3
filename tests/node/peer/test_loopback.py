"""Tests of `Node.local`: a node that is its own peer."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Call, CallRefused, Identity, NamedEvent, Node, ParleyError, ResultCode, Stream
from parley._node.errors import PeerClosedError, StreamResetError
from parley.trust import OneOf
from tests.inspection import connections_of
from tests.node.journal.journal_nodes import journal_of, journaled
from tests.node.network import config, eventually, new_node

pytestmark = pytest.mark.anyio


async def test_a_node_calls_itself_and_is_asked_as_a_peer_is() -> None:
    async with new_node() as node:
        node.roles.assign(node.node_id, "admin")

        @node.on_call("who", allow=node.node_id)
        async def who(call: Call) -> Any:
            return call.peer.node_id == node.node_id

        @node.on_call("admin", allow="admin")
        async def admin(call: Call) -> Any:
            return call.data

        @node.on_call("others", allow=Identity.create().node_id)
        async def others(call: Call) -> None:
            pytest.fail("it was not to run")

        me = await node.local()
        assert me.node_id == node.node_id
        assert me.encrypted
        assert await me.call("who") is True
        assert await me.call("admin", {"a": [1]}) == {"a": [1]}
        with pytest.raises(CallRefused) as refused:
            await me.call("others")
        assert refused.value.code == ResultCode.NOT_AUTHORISED


async def test_topics_events_streams_and_calls_made_once() -> None:
    async with new_node() as node:
        news = node.topic("news", keep=10, writers=node.node_id)

        @node.on("hello")
        async def hello(event: NamedEvent) -> str:
            return "hi"

        @node.on_stream("echo")
        async def echo(stream: Stream) -> None:
            await stream.send(await stream.receive())

        me = await node.local()
        async with me.subscribe("news") as sub:
            await news.publish("first")
            await me.publish("news", "second", once=True)
            assert [await anext(sub), await anext(sub)] == ["first", "second"]
            (subscriber,) = news.subscribers
            assert subscriber.peer.node_id == node.node_id
        assert (await me.emit("hello").reply()).data == "hi"
        stream = me.open_stream("echo")
        await stream.send(b"hello")
        assert await stream.receive() == b"hello"


async def test_each_session_is_its_own_and_may_be_closed() -> None:
    async with new_node() as node:
        node.topic("news")
        async with (
            await node.local() as one,
            await node.local() as other,
            one.subscribe("news"),
            other.subscribe("news"),
        ):
            assert len(node.topics["news"].subscribers) == 2
        with pytest.raises(PeerClosedError):
            await one.call("x")
        await eventually(lambda: not connections_of(node))


async def test_it_is_not_among_the_peers_and_no_policy_ends_it() -> None:
    somebody = Identity.create().node_id
    async with new_node(trust=OneOf([somebody]), max_connections=1) as node:
        me = await node.local()
        assert node.peers == []
        await node.review()
        await node.change_trust(OneOf([Identity.create().node_id]))
        assert await me.ping() >= 0
        assert node.turned_away == 0


@pytest.mark.parametrize("plaintext", ["only", "both"])
async def test_a_node_without_encryption_knows_itself_all_the_same(plaintext: Any) -> None:
    async with Node(Identity.create(), config=config(plaintext=plaintext)) as node:

        @node.on_call("mine", allow=node.node_id)
        async def mine(call: Call) -> str:
            return "mine"

        me = await node.local()
        assert await me.call("mine") == "mine"
        assert me.encrypted is (plaintext == "both")


async def test_a_journal_keeps_nothing_of_it(tmp_path: Path) -> None:
    async with journaled(tmp_path / "journal") as node:
        me = await node.local()
        assert await me.call("echo", 1) == 1
        metrics = journal_of(node).metrics
        assert metrics.sessions == 0


async def test_a_handler_that_runs_for_itself_is_waited_for_at_the_end() -> None:
    ended = []
    async with new_node(drain_timeout=5.0) as node, anyio.create_task_group() as tasks:

        @node.on_call("slow")
        async def slow(call: Call) -> None:
            await anyio.sleep(0.02)
            ended.append(call.topic)

        me = await node.local()
        tasks.start_soon(me.call, "slow")
        await eventually(lambda: bool(connections_of(node)) and me.is_open)
    assert ended == ["slow"]


async def test_the_end_of_the_node_is_the_end_of_it() -> None:
    async with new_node() as node:
        me = await node.local()
        stream = me.open_stream("nothing")
        with pytest.raises(StreamResetError):
            await stream.receive()
    assert not me.is_open
    assert not connections_of(node)
    with pytest.raises(ParleyError):
        await node.local()


async def test_one_that_is_cancelled_leaves_nothing() -> None:
    async with new_node() as node:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await node.local()
        await eventually(lambda: not connections_of(node))
