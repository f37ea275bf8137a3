"""Subscriptions of a link continue when their session has ended."""

import logging

import anyio
import pytest

from parley import Node, SubscribeRequest
from parley._node.errors import (
    CallRefused,
    CallTimeout,
    ParleyError,
    PeerClosedError,
    SubscribeRefused,
)
from parley._node.handlers.topic import Topic
from parley._node.peer import link as links
from parley._node.peer.link_subscription import LinkSubscription
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import LimitReachedError
from tests.inspection import parts_of
from tests.node.network import PATIENCE, eventually, new_node, nothing_left, settled, started
from tests.node.peer.servers import QUICK, Server, serving

pytestmark = pytest.mark.anyio


def news(node: Node) -> None:
    node.topic("news")


def remembered_news(node: Node) -> None:
    node.topic("news", keep=10)


def topic_of(server: Server) -> Topic:
    assert server.node is not None
    return server.node.topics["news"]


async def subscribed(server: Server) -> Topic:
    """The topic, once somebody is subscribed."""
    topic = topic_of(server)
    await topic.until(lambda: bool(topic.subscribers))
    return topic


async def test_a_subscription_goes_on_over_sessions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def restarts() -> None:
        async with (
            serving(news) as server,
            new_node() as node,
            node.link(server.address, pauses=QUICK) as link,
            link.subscribe("news", "please") as subscription,
        ):
            for count, end in enumerate((server.stop, server.kill, server.stop), 1):
                topic = await subscribed(server)
                await topic.publish(count, {"from": "us"})
                await topic.publish(-count)
                assert await anext(subscription) == count
                assert dict(subscription.headers) == {"from": "us"}
                assert await subscription.next_batch() == [-count]
                assert subscription.sessions == count
                await end()
                await server.start()

    with nothing_left():
        await restarts()


async def test_unread_notes_outlive_their_session() -> None:
    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):
        for count in range(4):
            # Two sessions may have notes unread; with more the next one has no subscription.
            if count < 2:
                topic = await subscribed(server)
                for note in range(3):
                    await topic.publish((count, note))
                await eventually(lambda: len(parts_of(subscription)[-1].inbox) > 0)
            else:
                await link.ready()
                await settled()
                assert not topic_of(server).subscribers
            await server.stop()
            await server.start()
        read = [await anext(subscription) for _ in range(6)]
        assert read == [[count, note] for count in range(2) for note in range(3)]
        async with anyio.create_task_group() as tasks:
            got = await started(tasks, lambda: anext(subscription))
            await (await subscribed(server)).publish("last")
        assert got == ["last"]


async def test_readers_learn_that_they_read_on_over_another_session() -> None:
    """The callback runs in the reading task, after the notes of the previous session and before
    those of the new one; also when no note arrives.
    """
    seen: list[object] = []

    def greeting(node: Node) -> None:
        node.topic("news").on_subscribe(lambda request: len(seen))

    async with (
        serving(greeting) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):

        @subscription.on_session
        async def again() -> None:
            await settled()
            seen.append(("again", subscription.data, subscription.sessions))

        assert subscription.data == 0
        await (await subscribed(server)).publish("before")
        await eventually(lambda: len(parts_of(subscription)[0].inbox) > 0)
        await server.stop()
        await server.start()
        topic = await subscribed(server)
        assert subscription.data == 0  # The notes read so far are from the first session.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read_two, subscription, seen)
            await eventually(lambda: seen == ["before", ("again", 0, 2)])
            await topic.publish("after")
        assert seen[-1] == "after"

        @subscription.on_session
        def fails() -> None:
            raise ZeroDivisionError

        await server.stop()
        await server.start()
        with pytest.raises(ZeroDivisionError):
            await anext(subscription)
        await (await subscribed(server)).publish("later")
        assert await anext(subscription) == "later"
        assert subscription.data == 3


async def read_two(subscription: LinkSubscription, seen: list[object]) -> None:
    seen.append(await anext(subscription))
    seen.append(await anext(subscription))


async def test_who_waits_until_it_is_subscribed() -> None:
    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):
        async with link.subscribe("news") as subscription:
            assert await subscription.ready() is link.peer
            await server.stop()
            await eventually(lambda: not link.is_up)
            with pytest.raises(CallTimeout):
                await subscription.ready(0.01)
            async with anyio.create_task_group() as tasks:
                peer = await started(tasks, subscription.ready)
                assert peer == []
                await server.start()
            assert peer == [link.peer]
        with pytest.raises(anyio.ClosedResourceError):
            await subscription.ready()


async def test_who_says_no() -> None:
    def pick(node: Node) -> None:
        @node.topic("news").on_subscribe
        def decide(request: SubscribeRequest) -> None:
            if request.data != "please" or not allowed:
                raise SubscribeRefused("no")

    allowed = True
    async with (
        serving(pick) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):
        with pytest.raises(SubscribeRefused):
            await link.subscribe("news").__aenter__()
        with pytest.raises(CallRefused, match="not found"):
            await link.subscribe("other").__aenter__()
        async with link.subscribe("news", "please") as subscription:
            with pytest.raises(ParleyError, match="cannot enter the subscription to 'news' again"):
                await subscription.__aenter__()
            await server.stop()
            allowed = False
            await server.start()
            with pytest.raises(SubscribeRefused):
                await anext(subscription)
            with pytest.raises(SubscribeRefused):
                await subscription.ready()
        with pytest.raises(anyio.ClosedResourceError):
            await anext(subscription)


async def test_a_topic_that_is_not_there_yet_is_asked_for_again() -> None:
    async with (
        serving(lambda node: news(node) if not first else None) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):
        await server.stop()
        first.append(1)
        later = await server.start()
        first.clear()
        await link.ready()
        await settled()
        later.topic("news")
        await (await subscribed(server)).publish("here")
        assert await anext(subscription) == "here"


first: list[int] = []


async def test_one_that_was_accepted_as_we_gave_it_up_is_asked_for_again() -> None:
    """The publisher counts the subscription until it has received the cancellation."""
    answers = iter([0, ResultCode.ALREADY_SUBSCRIBED, 0])

    def news_that_say_so(node: Node) -> None:
        @node.topic("news").on_subscribe
        def decide(request: SubscribeRequest) -> None:
            if code := next(answers):
                raise CallRefused(code, None)

    async with (
        serving(news_that_say_so) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):
        await server.stop()
        await server.start()
        await (await subscribed(server)).publish("here")
        assert await anext(subscription) == "here"


async def test_a_topic_that_was_started_anew_is_told_by_the_first_note_that_is_read() -> None:
    """Also if a session after the one that reported it recovers all."""
    async with (
        serving(remembered_news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):
        await (await subscribed(server)).publish(1)
        assert await anext(subscription) == 1
        async with anyio.create_task_group() as tasks:
            got = await started(tasks, lambda: anext(subscription))
            await server.kill()
            await server.start()
            topic = await subscribed(server)
            await eventually(lambda: subscription.sessions == 2)
            (await link.ready()).live.lost("before anything was published")
            await eventually(lambda: subscription.sessions == 3)
            await topic.publish(2)
        assert (got, subscription.recovered) == ([2], False)
        (await link.ready()).live.lost("and again")
        await topic.publish(3)
        assert (await anext(subscription), subscription.recovered) == (3, True)


async def test_the_end_of_the_topic_is_the_end() -> None:
    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        link.subscribe("news") as subscription,
    ):
        topic = await subscribed(server)
        await topic.publish(1)
        assert not subscription.is_over
        await topic.finish()
        await eventually(lambda: subscription.is_over)
        assert [note async for note in subscription] == [1]
        assert [batch async for batch in subscription.batches()] == []


async def test_the_end_of_the_link_is_told_to_readers() -> None:
    async with serving(news) as server, new_node() as node:
        async with (
            anyio.create_task_group() as tasks,
            node.link(server.address, pauses=QUICK) as link,
        ):
            subscription = await link.subscribe("news").__aenter__()
            got = await started(tasks, lambda: anext(subscription))
        assert isinstance(got[0], PeerClosedError)
        with pytest.raises(PeerClosedError, match="link has ended"):
            await anext(subscription)
        await subscription.__aexit__(None, None, None)


async def test_subscriptions_are_bounded_and_wait_within_their_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "MOST_SUBSCRIPTIONS", 1)
    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):
        async with link.subscribe("news"):
            with pytest.raises(LimitReachedError, match="it has 1 subscriptions already"):
                await link.subscribe("other").__aenter__()
        await server.stop()
        with pytest.raises(CallTimeout):
            await link.subscribe("news", timeout=0.02).__aenter__()
        await server.start()
        async with link.subscribe("news"):
            pass


@pytest.mark.slow
async def test_a_subscription_is_cancelled_at_any_moment(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def cancel() -> None:
        async with (
            serving(news) as server,
            new_node() as node,
            node.link(server.address, pauses=QUICK) as link,
        ):
            for restart in (False, True):
                for seconds in (0.0, 0.001, 0.004, 0.02):
                    with anyio.move_on_after(seconds) as scope:
                        async with link.subscribe("news") as subscription:
                            if restart:
                                await server.stop()
                            await anext(subscription)
                    assert scope.cancelled_caught
                    if restart:
                        await server.stop()
                        await server.start()
            topic = topic_of(server)
            await topic.until(lambda: not topic.subscribers)

    with anyio.fail_after(PATIENCE), nothing_left():
        await cancel()
