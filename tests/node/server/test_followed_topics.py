"""Topics of other nodes that a server follows for its accounts: one subscription for all, the
publisher's numbers, and reports of missing notes.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from parley import Node, Peer, SubscribeRequest
from parley._crypto.identity import Identity, NodeId
from parley._node.backoff import Backoff
from parley._node.errors import (
    CallRefused,
    ParleyError,
    StreamResetError,
    SubscribeRefused,
    UnreachableError,
)
from parley._node.federation.exports import Exports
from parley._node.handlers.topic import Topic
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.server import followed_topics as followed_topic
from parley._node.server import followed_topics as follows_module
from parley._node.server.followed_topics import KEPT_BYTES, FollowedTopics
from parley._node.testing import connect_nodes
from tests.node.network import PATIENCE, config, eventually, new_node, nothing_left

pytestmark = pytest.mark.anyio


class Federated:
    """A publisher, a server that follows `news.*` of it, and two accounts of the server."""

    def __init__(
        self, stack: AsyncExitStack, publisher: Node, server: Node, ann: Node, bob: Node
    ) -> None:
        self.stack = stack
        self.publisher, self.server, self.ann, self.bob = publisher, server, ann, bob
        self.accounts = {ann.node_id, bob.node_id}
        self.reached: list[Sequence[NodeId]] = []
        self.fails: Exception | None = None
        self.session: Peer | None = None  # to the publisher
        self.gate: anyio.Event | None = None  # connections to the publisher wait until it is set
        self.follows = FollowedTopics(
            server, self.reach, Exports(["news.*"]), self.accounts.__contains__
        )

    async def begin(self) -> None:
        self.to_ann, _ = await connect_nodes(self.ann, self.server)
        self.to_bob, _ = await connect_nodes(self.bob, self.server)

    async def reach(self, to: Sequence[NodeId]) -> Peer:
        self.reached.append(to)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        self.session, _ = await connect_nodes(self.server, self.publisher)
        return self.session

    def name(self, topic: str = "news.eu") -> str:
        return f"{topic}@{self.publisher.node_id}"

    async def cut(self) -> None:
        assert self.session is not None
        await self.session.close()

    async def restart(self) -> None:
        """Replace the publisher by another one with the same topics."""
        again = new_node()
        await self.stack.enter_async_context(again)
        self.publisher_again, session = again, self.session
        self.publisher, self.session = again, None
        assert session is not None
        again.topic("news.eu", keep=10)
        await session.close()


@asynccontextmanager
async def federation(**settings: Any) -> AsyncIterator[Federated]:
    """Connect them in memory."""
    with anyio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            nodes = [Node(Identity.create(), config=config(**settings)) for _ in range(4)]
            for node in nodes:
                await stack.enter_async_context(node)
            made = Federated(stack, *nodes)
            await stack.enter_async_context(made.follows)
            await made.begin()
            yield made


@pytest.fixture
async def world(anyio_backend: str) -> AsyncIterator[Federated]:
    async with federation() as made:
        yield made


async def take(sub: Any, count: int) -> list[Any]:
    return [await anext(sub) for _ in range(count)]


async def refusal(peer: Peer, name: str, data: Any = None) -> int:
    with pytest.raises(CallRefused) as refused:
        await peer.subscribe(name, data).__aenter__()
    return refused.value.code


# One subscription for all.


async def test_one_subscription_with_the_publishers_numbers(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=100)
    for number in range(1, 6):
        await topic.publish(number)
    async with world.to_ann.subscribe(world.name()) as ann:
        assert await take(ann, 5) == [1, 2, 3, 4, 5]
        async with world.to_bob.subscribe(world.name(), after=ann.position) as bob:
            assert bob.recovered
            assert len(topic.subscribers) == 1
            assert [one.peer.node_id for one in topic.subscribers] == [world.server.node_id]
            await topic.publish(6, {"from": "us"})
            await topic.publish(7)
            for sub in (ann, bob):
                assert await anext(sub) == 6
                assert dict(sub.headers) == {"from": "us"}
                assert await anext(sub) == 7
                assert (sub.position, sub.gaps) == (topic.position, 0)
        assert len(topic.subscribers) == 1
    await eventually(lambda: not topic.subscribers and not world.follows.topics)
    assert world.reached == [(world.publisher.node_id,)]


async def test_a_topic_that_does_not_remember(world: Federated) -> None:
    topic = world.publisher.topic("news.eu")
    async with (
        world.to_ann.subscribe(world.name()) as ann,
        world.to_bob.subscribe(world.name()) as bob,
    ):
        # Once accepted, a subscriber gets all later notes.
        await topic.publish("first")
        topic.close()
        for sub in (ann, bob):
            assert [note async for note in sub] == ["first"]
            assert sub.position is None
    await eventually(lambda: not world.follows.topics)


async def test_it_begins_where_the_first_one_is(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=3)
    for number in range(1, 4):
        await topic.publish(number)
    async with world.to_ann.subscribe(world.name()) as ann:
        assert await take(ann, 2) == [1, 2]
        position = ann.position
    position = position._replace(number=2) if position else None
    await topic.publish(4)
    async with world.to_ann.subscribe(world.name(), after=position) as again:
        assert again.recovered
        assert await take(again, 2) == [3, 4]
    for number in range(5, 10):
        await topic.publish(number)
    async with world.to_ann.subscribe(world.name(), after=again.position) as late:
        assert (late.recovered, late.gaps) == (False, 2)
        assert await take(late, 3) == [7, 8, 9]
        async with world.to_bob.subscribe(world.name()) as bob:  # stored notes come first
            assert await take(bob, 3) == [7, 8, 9]
            assert bob.number == 9


async def test_a_node_at_a_home(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=1)
    home = Identity.create().node_id
    async with world.to_ann.subscribe(f"news.eu@{home}/{world.publisher.node_id}") as sub:
        await topic.publish(1)
        assert await anext(sub) == 1
    assert world.reached == [(home, world.publisher.node_id)]


async def test_immediate_resubscription(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=10)
    for number in range(1, 6):
        async with world.to_ann.subscribe(world.name()) as sub:
            await topic.publish(number)
            while await anext(sub) != number:
                pass
    await eventually(lambda: not world.follows.topics)


async def test_nothing_is_left_when_servers_end_in_the_middle() -> None:
    with nothing_left():
        async with federation() as world:
            topic = world.publisher.topic("news.eu", keep=10)
            sub = await world.to_ann.subscribe(world.name()).__aenter__()
            await topic.publish(1)
            assert await anext(sub) == 1
            del sub, topic, world


# The session with the publisher is lost.


async def test_transfer_continues_over_another_session(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=100)
    async with (
        world.to_ann.subscribe(world.name()) as ann,
        world.to_bob.subscribe(world.name()) as bob,
    ):
        await topic.publish(1)
        assert (await take(ann, 1), await take(bob, 1)) == ([1], [1])
        await world.cut()
        await topic.publish(2)
        await topic.publish(3)
        for sub in (ann, bob):
            assert await take(sub, 2) == [2, 3]
            assert (sub.number, sub.gaps) == (3, 0)
    assert len(world.reached) == 2


@pytest.mark.pure  # It replaces a constant of the core.
async def test_a_publisher_that_ends_each_session_is_not_dialled_all_the_time(
    world: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_topic, "PAUSES", Backoff(first=600.0, longest=600.0))
    world.publisher.topic("news.eu", keep=10)
    async with world.to_ann.subscribe(world.name()):
        await world.cut()
        for _ in range(5):
            await world.to_ann.ping()
        assert len(world.reached) == 1
        (topic,) = world.follows.topics
        assert len(topic.subscribers) == 1


async def test_dropped_notes_are_reported_by_numbers(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=2)
    async with (
        world.to_ann.subscribe(world.name()) as ann,
        world.to_bob.subscribe(world.name(), window=1) as bob,
    ):
        await topic.publish("a")
        await topic.publish("b")
        assert await take(ann, 2) == ["a", "b"]
        world.gate = anyio.Event()
        await world.cut()
        await topic.until(lambda: not topic.subscribers)
        for number in range(10):
            await topic.publish(number)
        world.gate.set()
        assert await take(ann, 2) == [8, 9]
        assert (ann.number, ann.gaps, ann.position) == (12, 8, topic.position)
        assert await take(bob, 4) == ["a", "b", 8, 9]
        assert (bob.number, bob.gaps) == (12, 8)


async def test_recreated_topic_resets_and_the_link_resubscribes(world: Federated) -> None:
    await world.publisher.topic("news.eu", keep=10).publish("old")
    name, address = world.name(), await world.server.listen("tcp://127.0.0.1:0")
    async with (
        world.ann.link(address) as link,
        link.subscribe(name) as ann,
        world.to_bob.subscribe(name) as bob,
    ):
        assert (await anext(ann), await anext(bob)) == ("old", "old")
        await world.restart()
        again = world.publisher_again.topics["news.eu"]
        await again.publish("new")
        with pytest.raises(StreamResetError) as reset:
            await anext(bob)
        assert reset.value.code == CloseCode.GOING_AWAY
        assert await anext(ann) == "new"
        assert (ann.recovered, ann.position, ann.sessions) == (False, again.position, 2)
        assert link.sessions == 1


async def test_a_topic_without_memory_resets_when_its_session_is_lost(world: Federated) -> None:
    topic = world.publisher.topic("news.eu")
    async with world.to_ann.subscribe(world.name()) as sub:
        await topic.publish(1)
        assert await anext(sub) == 1
        await world.cut()
        with pytest.raises(StreamResetError) as reset:
            await anext(sub)
        assert reset.value.code == CloseCode.GOING_AWAY
    async with world.to_ann.subscribe(world.name()) as again:
        await topic.publish(2)
        assert await anext(again) == 2


async def test_unreachable_publisher(world: Federated) -> None:
    world.publisher.topic("news.eu", keep=10)
    async with world.to_ann.subscribe(world.name()) as sub:
        world.fails = UnreachableError("no way")
        await world.cut()
        with pytest.raises(StreamResetError):
            await anext(sub)
    assert await refusal(world.to_ann, world.name()) == ResultCode.UNREACHABLE
    world.fails = None
    async with world.to_ann.subscribe(world.name(), after=sub.position) as again:
        assert again.recovered


# Permissions and refusals.


async def test_permissions_to_subscribe(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=1)
    world.publisher.topic("sport")
    name, me = world.name(), world.publisher.node_id
    for wrong in (
        "news.eu",
        "news.eu@",
        "news.eu@x",
        f"{name}/",
        f"{name}/{me}/{me}",
        f"{name.upper()}",
        f"news.{'x' * 1_020}@{me}",
    ):
        assert await refusal(world.to_ann, wrong) == ResultCode.TOPIC_NOT_FOUND
    assert await refusal(world.to_ann, world.name("sport")) == ResultCode.NOT_AUTHORISED
    world.accounts.remove(world.ann.node_id)
    assert await refusal(world.to_ann, name) == ResultCode.NOT_AUTHORISED
    assert world.reached == []
    world.server.on_subscribe("news.*", allow=["reader"])(lambda request: None)
    assert await refusal(world.to_bob, name) == ResultCode.NOT_AUTHORISED
    assert world.reached == []
    world.server.roles.assign(world.bob.node_id, "reader")
    async with world.to_bob.subscribe(name):
        assert await refusal(world.to_bob, name) == ResultCode.ALREADY_SUBSCRIBED
        assert len(topic.subscribers) == 1


async def test_revoked_account_reads_no_further_notes(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", keep=1)
    async with (
        world.to_ann.subscribe(world.name()) as ann,
        world.to_bob.subscribe(world.name()) as bob,
    ):
        world.accounts.remove(world.ann.node_id)
        world.follows.end_unless(world.accounts.__contains__)
        with pytest.raises(StreamResetError) as reset:
            await anext(ann)
        assert reset.value.code == CloseCode.NOT_AUTHORISED
        await topic.publish("more")
        assert await anext(bob) == "more"


async def test_a_pattern_may_name_the_server() -> None:
    async with federation() as world:
        world.publisher.topic("sport")
        world.follows._follow = Exports([world.name("sport")])
        async with world.to_ann.subscribe(world.name("sport")):
            pass
        assert await refusal(world.to_ann, world.name()) == ResultCode.NOT_AUTHORISED


async def test_refusals_of_the_publisher(world: Federated) -> None:
    assert await refusal(world.to_ann, world.name()) == ResultCode.TOPIC_NOT_FOUND
    topic = world.publisher.topic("news.eu", allow=["server"])
    assert await refusal(world.to_ann, world.name()) == ResultCode.NOT_AUTHORISED
    world.publisher.roles.assign(world.server.node_id, "server")

    @topic.on_subscribe
    def reject(request: SubscribeRequest) -> None:
        raise SubscribeRefused({"why": "not today"})

    with pytest.raises(SubscribeRefused) as rejected:
        await world.to_ann.subscribe(world.name()).__aenter__()
    assert rejected.value.data == {"why": "not today"}
    assert await refusal(world.to_ann, world.name(), {"version": 2}) == ResultCode.REJECTED
    assert not world.follows.topics


async def test_topics_of_one_publisher_share_a_session(world: Federated) -> None:
    for name in ("news.eu", "news.us"):
        world.publisher.topic(name)
    async with world.to_ann.subscribe(world.name("news.us")):
        async with world.to_ann.subscribe(world.name()), world.to_bob.subscribe(world.name()):
            assert len(world.reached) == len(world.publisher.peers) == 1
        await eventually(lambda: len(world.follows.topics) == 1)
        assert len(world.publisher.peers) == 1
    await eventually(lambda: not world.publisher.peers)


async def test_the_server_may_be_subscribed_itself(world: Federated) -> None:
    topic = world.publisher.topic("news.eu")
    peer, _ = await connect_nodes(world.server, world.publisher)
    async with peer.subscribe("news.eu"), world.to_ann.subscribe(world.name()):
        assert len(topic.subscribers) == 2
    await eventually(lambda: not world.follows.topics)
    assert peer.is_open


@pytest.mark.parametrize("error", [ParleyError("no"), RuntimeError("a bug")])
async def test_failures_to_reach_the_publisher(world: Federated, error: Exception) -> None:
    world.fails = error
    assert await refusal(world.to_ann, world.name()) == ResultCode.UNREACHABLE
    assert not world.follows.topics


@pytest.mark.pure  # It replaces a constant of the core.
async def test_the_way_to_the_publisher_is_tolerated_so_long(
    world: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follows_module, "OPEN_TIMEOUT", 0.05)
    world.gate = anyio.Event()
    assert await refusal(world.to_ann, world.name()) == ResultCode.DEADLINE_EXCEEDED
    await eventually(lambda: not world.follows.topics)


async def test_cancelled_reach_leaves_nothing_open(world: Federated) -> None:
    world.publisher.topic("news.eu")
    world.gate = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.to_ann.subscribe(world.name()).__aenter__)
        await eventually(lambda: bool(world.reached))
        tasks.cancel_scope.cancel()
    await eventually(lambda: not world.follows.topics)
    with pytest.raises(CallRefused):
        async with world.to_ann.subscribe(world.name(), timeout=0.01):
            pass
    await eventually(lambda: not world.follows.topics)


@pytest.mark.pure  # It replaces a constant of the core.
async def test_limits(world: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follows_module, "MOST_FOLLOWED", 3)
    monkeypatch.setattr(follows_module, "MOST_OF_ACCOUNT", 2)
    for name in ("news.1", "news.2", "news.3", "news.4"):
        world.publisher.topic(name)
    async with (
        world.to_ann.subscribe(world.name("news.1")),
        world.to_ann.subscribe(world.name("news.2")),
    ):
        assert await refusal(world.to_ann, world.name("news.3")) == ResultCode.OVERLOADED
        async with (
            world.to_bob.subscribe(world.name("news.3")),
            world.to_ann.subscribe(world.name("news.3")),
        ):
            assert await refusal(world.to_bob, world.name("news.4")) == ResultCode.OVERLOADED
            assert len(world.follows.topics) == 3


@pytest.mark.pure  # It replaces a constant of the core.
async def test_account_with_many_topics_loses_one_to_another(
    world: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follows_module, "MOST_FOLLOWED", 3)
    names = [f"news.{number}" for number in range(5)]
    topics = [world.publisher.topic(name) for name in names]
    async with AsyncExitStack() as stack:
        subs = [
            await stack.enter_async_context(world.to_ann.subscribe(world.name(name)))
            for name in names[:3]
        ]
        await topics[0].publish("active")
        assert await anext(subs[0]) == "active"
        # Ann's longest idle topic is evicted for Bob's, and no other can be.
        by_bob = await stack.enter_async_context(world.to_bob.subscribe(world.name(names[3])))
        with pytest.raises(StreamResetError) as caught:
            await anext(subs[1])
        assert caught.value.code == CloseCode.OVERLOADED
        assert await refusal(world.to_bob, world.name(names[4])) == ResultCode.OVERLOADED
        assert await refusal(world.to_ann, world.name(names[4])) == ResultCode.OVERLOADED
        for topic, sub in ((topics[2], subs[2]), (topics[3], by_bob)):
            await topic.publish("more")
            assert await anext(sub) == "more"
        assert len(world.follows.topics) == 3


async def test_followed_topics_start_once_and_report_their_end(world: Federated) -> None:
    world.publisher.topic("news.eu", keep=1)
    with pytest.raises(ParleyError):
        await FollowedTopics(world.server, world.reach, Exports(), lambda who: True).__aenter__()
    async with world.to_ann.subscribe(world.name()) as sub:
        await world.follows.__aexit__(None, None, None)
        with pytest.raises(StreamResetError):
            await anext(sub)
    assert await refusal(world.to_ann, world.name()) == ResultCode.TOPIC_NOT_FOUND
    await world.follows.__aenter__()


# Slow readers.


def topic_here(world: Federated) -> Topic:
    (topic,) = world.follows.topics
    return topic


async def test_single_slow_reader_loses_no_notes_within_a_memory_limit(world: Federated) -> None:
    count, size = 400, 10_000
    topic = world.publisher.topic("news.eu", keep=count, patience=0)
    for number in range(count):
        await topic.publish([number, bytes(size)])
    async with world.to_ann.subscribe(world.name(), window=1) as ann:
        got: list[Any] = []
        for _ in range(count):
            got += [note[0] for note in await take(ann, 1)]
            here = topic_here(world)
            assert here.kept_bytes <= KEPT_BYTES
            assert sum(one.waiting_bytes for one in here.subscribers) <= 1 << 20
        assert got == list(range(count))
        assert ann.gaps == 0


async def test_slow_transfer_does_not_delay_another(world: Federated) -> None:
    count, size = 400, 10_000
    topic = world.publisher.topic("news.eu", keep=count, patience=0)
    async with (
        world.to_ann.subscribe(world.name()) as ann,
        world.to_bob.subscribe(world.name(), window=1) as bob,
    ):
        topic_here(world)._patience = 0
        for number in range(count):
            await topic.publish([number, bytes(size)])
        assert [note[0] for note in await take(ann, count)] == list(range(count))
        got: list[Any] = []
        while bob.number < count:
            got += [note[0] for note in await take(bob, 1)]
        assert got == sorted(got)
        assert bob.gaps == count - len(got) > 0


async def test_losses_before_the_server_are_reported(world: Federated) -> None:
    """The topic has no history and drops the oldest notes of slow subscribers."""
    topic = world.publisher.topic("news.eu", slow="drop-oldest", buffer=100_000, patience=0)
    async with world.to_ann.subscribe(world.name(), window=1) as ann:
        for number in range(600):
            await topic.publish([number, bytes(10_000)])
        await topic.publish("last")
        got: list[Any] = []
        while not got or got[-1] != "last":
            got.append(await anext(ann))
        assert ann.dropped == topic.dropped == 601 - len(got) > 0
        assert dict(ann.headers).keys() <= {DROPPED_HEADER}


async def test_the_publishers_reset_is_passed_on(world: Federated) -> None:
    topic = world.publisher.topic("news.eu", buffer=100_000, patience=0)
    async with world.to_ann.subscribe(world.name(), window=1) as ann:
        for number in range(600):
            await topic.publish([number, bytes(10_000)])
        with pytest.raises(StreamResetError) as reset:
            async for _ in ann:
                pass
        assert reset.value.code == CloseCode.SLOW_CONSUMER


async def test_replaced_notes_are_no_gap_over_a_home() -> None:
    async with federation() as all_of_them:
        topic = all_of_them.publisher.topic("news.keyed", keep_last_by="item")
        for number in range(1, 8):
            await topic.publish({"item": "b" if number == 4 else "a", "n": number})
        name = all_of_them.name("news.keyed")
        async with all_of_them.to_ann.subscribe(name, returns=dict[str, Any]) as sub:
            assert [(await anext(sub))["n"] for _ in range(2)] == [4, 7]
            assert (sub.number, sub.gaps) == (7, 0)
            await topic.publish({"item": "a", "n": 8})
            assert (await anext(sub))["n"] == 8
            assert (sub.number, sub.gaps, sub.dropped) == (8, 0, 0)
