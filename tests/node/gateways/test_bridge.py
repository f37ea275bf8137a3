"""A bridge: broadcasts become notes and notes become broadcasts, once each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import anyio
import pytest

from parley import Topic
from parley._node.dialects.limits import DialectLimits
from parley._node.errors import ConfigError, ParleyError
from parley._node.gateways.relay.bridge import SENDER, Bridge
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.testing import ConnectedNodes
from tests.node.gateways.relays import PLACE, clients_of, read
from tests.node.network import PATIENCE, eventually, meeting, new_node, settled

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def bridged(
    values: Any = "cbor", **limits: Any
) -> AsyncIterator[tuple[ConnectedNodes, Topic, Relay, Bridge, str]]:
    """Run two connected nodes, of which the server publishes a topic and has a relay."""
    async with meeting() as met:
        topic = met.server.topic("news")
        async with (
            Relay(limits=DialectLimits(**limits)) as relay,
            Bridge(relay, topic, met.server.node_id.uuid, values=values) as bridge,
        ):
            yield met, topic, relay, bridge, await relay.listen(PLACE)


async def test_a_broadcast_is_a_note_and_a_note_a_broadcast() -> None:
    async with (
        bridged() as (met, topic, relay, bridge, address),
        clients_of(relay, address, 2) as (one, two),
        met.peer.subscribe("news") as notes,
    ):
        assert bridge.uuid in relay
        await one.broadcast(b"from the relay")
        assert await anext(notes) == b"from the relay"
        assert notes.headers == {SENDER: str(one.uuid)}
        assert await read(two) == [(one.uuid, b"from the relay", True)]
        await topic.publish("from the node")
        for client in (one, two):
            assert await read(client) == [(bridge.uuid, b"from the node", True)]
        # Neither is echoed: the next message is the one sent next.
        assert await anext(notes) == "from the node"
        await one.broadcast(b"next")
        assert await anext(notes) == b"next"
        assert await read(two) == [(one.uuid, b"next", True)]
        assert (bridge.published, bridge.broadcast, bridge.lost) == (2, 1, 0)


@pytest.mark.parametrize(
    ("values", "note", "payload"),
    [
        ("cbor", None, b""),
        ("cbor", "tëxt", "tëxt".encode()),
        ("cbor", {"n": 1}, b"\xa1\x61n\x01"),
        ("json", {"n": 1}, b'{"n":1}'),
        ("msgpack", [1, "a"], b"\x92\x01\xa1a"),
    ],
)
async def test_values_travel_by_the_table(values: str, note: Any, payload: bytes) -> None:
    async with (
        bridged(values) as (_, topic, relay, _, address),
        clients_of(relay, address, 1) as (client,),
    ):
        await topic.publish(note)
        [(_, got, _)] = await read(client)
        assert got == payload


async def test_messages_that_do_not_fit_are_lost_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        bridged("json", longest_frame=1_000) as (_, topic, relay, bridge, address),
        clients_of(relay, address, 1) as (client,),
    ):
        await topic.publish({"bytes": b"not in JSON"})
        await topic.publish(bytes(969))
        await topic.publish(bytes(968))
        assert await read(client) == [(bridge.uuid, bytes(968), True)]
        assert bridge.lost == 2
        assert caplog.text.count("lost a message") == 1


async def test_a_broadcast_of_another_type_is_lost() -> None:
    async with new_node() as node:
        note_type: Any = int | None
        topic = node.topic("news", note_type)
        async with (
            Relay() as relay,
            Bridge(relay, topic, node.node_id.uuid) as bridge,
            RelayClient(await relay.listen(PLACE)) as client,
        ):
            await client.broadcast(b"bytes are all that a broadcast has")
            await client.broadcast(b"")
            await eventually(lambda: bridge.published == 1)
            assert bridge.lost == 1


async def test_a_broadcast_that_is_too_long_for_a_note_is_lost() -> None:
    async with anyio.create_task_group(), new_node() as node:
        topic = node.topic("news")
        longest = node.config.limits.max_payload
        limits = DialectLimits(longest_frame=2 * longest, write_buffer=8 * longest)
        with anyio.fail_after(PATIENCE):
            async with (
                Relay(limits=limits) as relay,
                Bridge(relay, topic, node.node_id.uuid) as bridge,
            ):
                address = await relay.listen(PLACE)
                async with RelayClient(address, limits=limits) as client:
                    await client.broadcast(bytes(longest))
                    await client.broadcast(b"short")
                    await eventually(lambda: bridge.published == 1)
                    assert bridge.lost == 1


async def test_messages_above_the_topics_speed_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        bridged(write_buffer=65_536) as (_, topic, relay, bridge, address),
        clients_of(relay, address, 1) as (client,),
    ):
        let_go, right = anyio.Event(), topic.publish

        async def held(*args: Any, **options: Any) -> None:
            await let_go.wait()
            await right(*args, **options)

        monkeypatch.setattr(topic, "publish", held)
        for _ in range(200):
            await client.broadcast(bytes(700))
        await client.send(client.uuid, b"all were sorted")
        await read(client)
        held_back = 65_536 // 1_000
        assert bridge.lost == pytest.approx(200 - held_back, abs=2)
        let_go.set()
        await eventually(lambda: bridge.published == 200 - bridge.lost)


async def test_a_message_to_the_node_itself_is_ignored_and_counted() -> None:
    async with (
        bridged() as (_, _, relay, bridge, address),
        clients_of(relay, address, 1) as (client,),
    ):
        await client.send(bridge.uuid, b"hello?")
        await eventually(lambda: bridge.ignored == 1)
        assert (client.faults, bridge.published) == (0, 0)


async def test_its_uuid_is_reserved() -> None:
    async with bridged() as (_, topic, relay, bridge, address):
        async with RelayClient(address, bridge.uuid) as thief:
            with pytest.raises(ParleyError, match="already connected"):
                await read(thief)
        with pytest.raises(ConfigError, match="cannot join the relay"):
            await Bridge(relay, topic, bridge.uuid).__aenter__()
        with pytest.raises(ParleyError, match="already"):
            await bridge.__aenter__()
        assert repr(bridge) == f"<Bridge 'news' as {bridge.uuid}>"


async def test_a_header_with_an_unknown_uuid_is_the_publishers_own() -> None:
    async with (
        bridged() as (_, topic, relay, bridge, address),
        clients_of(relay, address, 1) as (client,),
    ):
        for sender in ("somebody", 7, str(UUID(int=9))):
            await topic.publish(b"news", {SENDER: sender})
            assert await read(client) == [(bridge.uuid, b"news", True)]


async def test_a_stopped_node_does_not_publish() -> None:
    async with new_node() as node:
        topic = node.topic("news")
    async with Relay() as relay, Bridge(relay, topic, node.node_id.uuid) as bridge:
        address = await relay.listen(PLACE)
        async with clients_of(relay, address, 1) as (client,):
            for n in range(3):
                await client.broadcast(bytes([n]))
            await client.send(client.uuid, b"all were sorted")
            await read(client)
            await settled()
        assert (bridge.published, bridge.lost) == (0, 3)


async def test_after_leaving_no_messages_are_forwarded() -> None:
    async with (
        bridged() as (_, topic, relay, bridge, address),
        clients_of(relay, address, 1) as (client,),
    ):
        await bridge.__aexit__(None, None, None)
        assert bridge.uuid not in relay
        await topic.publish(b"unheard")
        await client.broadcast(b"unheard")
        await client.send(client.uuid, b"first to come")
        assert await read(client) == [(client.uuid, b"first to come", False)]
        assert (bridge.published, bridge.broadcast) == (0, 0)


async def test_without_a_running_relay_there_is_no_bridge() -> None:
    async with new_node() as node:
        with pytest.raises(ParleyError, match="not running"):
            await Bridge(Relay(), node.topic("news"), node.node_id.uuid).__aenter__()


async def test_two_nodes_with_one_relay_and_one_topic_make_no_circle() -> None:
    # The second node forwards the topic of the first, and bridges it to the same relay.
    async with (
        bridged() as (met, topic, relay, first, address),
        Bridge(relay, met.client.topic("news"), met.client.node_id.uuid) as second,
        clients_of(relay, address, 1) as (client,),
        met.peer.subscribe("news") as notes,
    ):

        async def forward() -> None:
            async for note in notes:
                await second.topic.publish(note, notes.headers)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward)
            await client.broadcast(b"round and round?")
            await eventually(lambda: second.published == second.ignored == 1)
            assert (first.published, first.broadcast, second.broadcast) == (1, 0, 0)
            await topic.publish(b"of the first node")
            # By the first node's bridge, then by the second's: it is not a broadcast of a client.
            got = await read(client, 2)
            assert got == [
                (first.uuid, b"of the first node", True),
                (second.uuid, b"of the first node", True),
            ]
            tasks.cancel_scope.cancel()
