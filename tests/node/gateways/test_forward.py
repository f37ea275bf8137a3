"""Topics of another node, forwarded over a link that is cut, rejected and re-established."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest

from parley import Node, SubscribeRefused, SubscribeRequest, Subscription
from parley._crypto.identity import Identity
from parley._lbm.codec import Value
from parley._node.backoff import Backoff
from parley._node.errors import AddressError, ConfigError, ParleyError
from parley._node.gateways.forward import Forward
from parley._node.handlers.topic import Topic
from parley._node.messaging.notes import DROPPED_HEADER
from parley._node.protocol.limits import Limits
from parley._node.testing import FaultyProxy
from parley._node.trust.policies import AnyPeer, Pinned
from tests.node.network import PATIENCE, eventually, new_node, nothing_left

pytestmark = pytest.mark.anyio

QUICK = Backoff(first=0.002, longest=0.01)


class Three(NamedTuple):
    """A source, a node that forwards its topic, and a reader of the forwarded topic.

    The link between the first two goes through `proxy`.
    """

    source: Node
    news: Topic
    proxy: FaultyProxy
    forward: Forward
    reader: Subscription

    async def read(self) -> Value:
        return await anext(aiter(self.reader))


@asynccontextmanager
async def three(**options: object) -> AsyncIterator[Three]:
    """Run three nodes in a row; the reader subscribes before the link is up."""
    with anyio.fail_after(PATIENCE):
        async with (
            new_node(drain_timeout=0) as source,
            new_node(drain_timeout=0) as middle,
            new_node() as end,
            FaultyProxy(await source.listen("tcp://127.0.0.1:0")) as proxy,
        ):
            news = source.topic("news")
            forward = Forward(middle, "news", proxy.address, pauses=QUICK, **options)  # type: ignore[arg-type]  # a test's
            peer = await end.connect(await middle.listen("tcp://127.0.0.1:0"))
            async with peer.subscribe("news") as reader, forward:
                await forward.linked()
                yield Three(source, news, proxy, forward, reader)


@asynccontextmanager
async def two(**settings: Any) -> AsyncIterator[tuple[Node, Node, str]]:
    """Run two nodes, the second with `settings`; yields them and the address of the first."""
    with anyio.fail_after(PATIENCE):
        async with new_node() as first, new_node(**settings) as second:
            yield first, second, await first.listen("tcp://127.0.0.1:0")


async def test_notes_of_another_node_reach_our_own_subscribers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)  # a log record would keep a reference to its peer

    async def carry() -> None:
        async with three() as nodes:
            forward = nodes.forward
            assert forward.peer is not None
            assert forward.peer.node_id == nodes.source.node_id
            await nodes.news.publish({"price": 1})
            await nodes.news.publish(b"two", {"from": "us", DROPPED_HEADER: 7})
            assert await nodes.read() == {"price": 1}
            assert await nodes.read() == b"two"
            # The source's header about the forward's own subscription is not for the local
            # subscribers.
            assert dict(nodes.reader.headers) == {"from": "us"}
            assert (forward.notes, forward.cuts) == (2, 0)
            assert forward.lost == 7  # so it says
            before = forward.seconds_without_link
            assert before == forward.seconds_without_link > 0
        assert not forward.is_linked

    with nothing_left():
        await carry()


async def test_a_link_that_is_cut_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    async with three() as nodes:
        for count in (1, 2, 3):
            nodes.proxy.cut()
            await eventually(lambda count=count: nodes.forward.cuts == count)  # type: ignore[misc]  # a default
            assert not nodes.forward.peer
            assert "not linked" in repr(nodes.forward)
            await nodes.forward.linked()
            await nodes.news.publish(count)
            assert await nodes.read() == count
        await eventually(lambda: len(nodes.source.peers) == 1)
    said = [record.message for record in caplog.records if record.name == "parley.forward"]
    assert sum("subscribing again in" in line for line in said) == 3
    assert sum("are missing" in line for line in said) == 3


async def test_a_rejected_subscription_is_retried() -> None:
    answers: list[Value] = []
    async with two() as (source, middle, address):

        @source.on_subscribe("later")
        async def decide(request: SubscribeRequest) -> None:
            answers.append(request.data)
            if len(answers) < 3:
                raise SubscribeRefused

        async with Forward(middle, "later", address, data="please", pauses=QUICK) as forward:
            await anyio.sleep(0.02)
            assert not forward.is_linked  # no such topic
            source.topic("later")
            await forward.linked()
        assert answers == ["please"] * 3
        assert forward.cuts == 0


async def test_the_end_of_the_topic_and_the_end_of_the_node() -> None:
    async with three() as nodes:
        nodes.news.close()
        await eventually(lambda: nodes.forward.cuts == 1)
        await nodes.forward.linked()
        await nodes.source.aclose()
        await eventually(lambda: nodes.forward.cuts == 2)
        assert not nodes.forward.is_linked
        # Its own subscribers wait for future notes.
        await nodes.forward.topic.publish("ours")
        assert await nodes.read() == "ours"


async def test_dropped_notes_are_counted_over_all_links(caplog: pytest.LogCaptureFixture) -> None:
    async with two(limits=Limits(stream_window=1024)) as (source, middle, address):
        news = source.topic("news", slow="unsubscribe", buffer=1024, patience=0)
        async with Forward(middle, "news", address, pauses=QUICK) as forward:
            for count in (1, 2):
                await forward.linked()
                async with anyio.create_task_group() as burst:
                    for _ in range(8):  # one fits the window, four wait on the connection
                        burst.start_soon(news.publish, bytes(60_000))
                await eventually(lambda count=count: forward.cuts == count)  # type: ignore[misc]  # a default
                assert forward.lost >= 5 * count
    assert any("notes lost" in record.message for record in caplog.records)


async def test_notes_that_do_not_fit_are_counted_and_do_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two(limits=Limits(max_payload=2048)) as (source, middle, address):
        news, told = source.topic("news"), list[object]()
        forward = Forward(middle, "news", address)
        # Removing the header frees space, so the test sets this node's limit itself.
        forward.topic._largest = 500
        forward.topic.tap(lambda data, headers: told.append(data))
        async with forward:
            await forward.linked()
            for note in (b"a", bytes(600), bytes(600), b"b"):
                await news.publish(note)
            await eventually(lambda: len(told) == 2)
        assert (told, forward.notes, forward.lost) == ([b"a", b"b"], 2, 2)
    assert sum("a note of" in record.message for record in caplog.records) == 1


async def test_notes_of_another_type_are_counted_and_do_no_harm() -> None:
    async with two() as (source, middle, address):
        news, told = source.topic("news"), list[object]()
        middle.topic("news", int).tap(lambda data, headers: told.append(data))
        forward = Forward(middle, "news", address)
        async with forward:
            await forward.linked()
            for note in (1, "two", 3):
                await news.publish(note)
            await eventually(lambda: len(told) == 2)
        assert (told, forward.notes, forward.lost) == ([1, 3], 2, 1)


async def test_two_nodes_do_not_forward_a_topic_to_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second one is rejected with a reason, and no note is sent back."""

    def said(words: str) -> bool:
        return any(words in record.message for record in caplog.records)

    async with two() as (one, other, _):
        addresses = [await node.listen("tcp://127.0.0.1:0") for node in (one, other)]
        theirs = other.topic("t")
        async with (
            Forward(one, "t", addresses[1], pauses=QUICK) as first,
            Forward(other, "t", addresses[0], pauses=QUICK) as second,
        ):
            await eventually(lambda: said("would go round for ever"))
            await eventually(lambda: first.is_linked != second.is_linked)
            published = (theirs if first.is_linked else one.topics["t"]).publish
            await published("once")
            await eventually(lambda: first.notes + second.notes == 1)
            await published("twice")
            await eventually(lambda: first.notes + second.notes == 2)
            assert first.is_linked != second.is_linked
        # It may again when there is no forward in the other direction.
        async with Forward(other, "t", addresses[0], pauses=QUICK) as second:
            await second.linked()


async def test_a_source_that_is_subscribed_here_is_not_forwarded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two() as (one, other, _):
        ours, address = one.topic("t"), await other.listen("tcp://127.0.0.1:0")
        other.topic("t")
        back = await other.connect(await one.listen("tcp://127.0.0.1:0"))
        async with Forward(one, "t", address, pauses=QUICK) as forward:
            await forward.linked()
            with pytest.raises(SubscribeRefused) as rejected:
                await back.subscribe("t").__aenter__()
            assert rejected.value.data == "its own notes of this topic would go round for ever"
        async with back.subscribe("t"), Forward(one, "t", address, pauses=QUICK) as forward:
            await eventually(
                lambda: any("subscribed here" in record.message for record in caplog.records)
            )
            assert not forward.is_linked
            assert len(ours.subscribers) == 1


async def test_a_subscription_is_refused_if_forwarding_begins_while_it_is_decided() -> None:
    async with two() as (one, other, _):
        ours, asked, go, refused = one.topic("t"), anyio.Event(), anyio.Event(), anyio.Event()
        address = await other.listen("tcp://127.0.0.1:0")
        other.topic("t")
        back = await other.connect(await one.listen("tcp://127.0.0.1:0"))

        @ours.on_subscribe
        async def decide(request: SubscribeRequest) -> None:
            asked.set()
            await go.wait()

        async def subscribe() -> None:
            with pytest.raises(SubscribeRefused):
                await back.subscribe("t").__aenter__()
            refused.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscribe)
            await asked.wait()
            async with Forward(one, "t", address, pauses=QUICK) as forward:
                await forward.linked()
                go.set()
                await refused.wait()
        assert not ours.subscribers


async def test_a_long_reason_is_logged_in_part(caplog: pytest.LogCaptureFixture) -> None:
    async with two() as (source, middle, address):

        @source.topic("t").on_subscribe
        def decide(request: SubscribeRequest) -> None:
            raise SubscribeRefused("no" * 10_000)

        async with Forward(middle, "t", address, pauses=QUICK):
            await eventually(lambda: "subscribing again" in caplog.text)
    said = next(r.getMessage() for r in caplog.records if "nono" in r.getMessage())
    assert 100 < len(said) < 1000


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.slow
async def test_it_is_cancelled_at_any_moment(
    linked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """While it dials, while it pauses, and while it forwards."""
    caplog.set_level(logging.CRITICAL)

    async def cancel() -> None:
        async with new_node(drain_timeout=0) as source, new_node() as middle:
            address = await source.listen("tcp://127.0.0.1:0")
            if linked:
                source.topic("t")
            forward = Forward(middle, "t", address, pauses=QUICK)
            for seconds in (0.0, 0.001, 0.01, 0.03):
                with anyio.move_on_after(seconds) as scope:
                    async with forward:
                        await anyio.sleep_forever()
                assert scope.cancelled_caught
                assert not forward.is_linked
            with pytest.raises(ZeroDivisionError):
                async with forward:
                    raise ZeroDivisionError
            await eventually(lambda: not source.peers)

    with anyio.fail_after(PATIENCE), nothing_left():
        await cancel()


async def test_notes_that_cannot_be_forwarded() -> None:
    node, place = new_node(), "tcp://127.0.0.1:1"
    with pytest.raises(AddressError):
        Forward(node, "t", "here")
    with pytest.raises(ConfigError, match="no node ID"):
        Forward(node, "t", place)
    assert not node.topics
    ours = node.topic("t")
    forward = Forward(node, "t", place, trust=AnyPeer())
    assert forward.topic is ours  # it shares one that is there
    with pytest.raises(ParleyError, match="not running"):
        await forward.__aenter__()
    async with node, forward:
        with pytest.raises(ParleyError, match="already"):
            await forward.__aenter__()


async def test_an_untrusted_node_is_not_forwarded(caplog: pytest.LogCaptureFixture) -> None:
    async with two() as (source, middle, address):
        source.topic("t")
        place = address.partition("#")[0]
        trust = Pinned(Identity.create().node_id)
        async with Forward(middle, "t", place, trust=trust, pauses=QUICK):
            await eventually(lambda: "retrying" in caplog.text)
    assert "linked" not in caplog.text
