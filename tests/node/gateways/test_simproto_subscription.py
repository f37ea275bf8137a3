"""Subscriptions over SimProto: rejections, notes, unread notes, and the end."""

from typing import Any

import anyio
import pytest

from parley import (
    CallRefused,
    CallTimeout,
    Node,
    PeerClosedError,
    SubscribeRefused,
    SubscribeRequest,
)
from parley._node.errors import ConfigError, ParleyError, StreamResetError
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.subscription import SimProtoSubscription
from parley._node.protocol.codes import CloseCode
from tests.node.gateways import restarts
from tests.node.gateways.simproto_sides import raw, served
from tests.node.network import eventually, meeting, nothing_left, settled, started

pytestmark = pytest.mark.anyio


async def test_notes_come_in_order() -> None:
    async with served() as sides:
        news = sides.node.topic("news")
        async with sides.client.subscribe("news") as notes:
            assert notes.data is None
            for note in (b"bytes", "text", None, 5, {"a": [1]}):
                await news.publish(note)
            read = [await anext(aiter(notes)) for _ in range(5)]
            assert read == [b"bytes", b"text", None, b"\x05", b"\xa1aa\x81\x01"]
            assert news.subscribers[0].peer is sides.back
        assert not news.subscribers  # already reported
        async with sides.client.subscribe("news") as notes:
            await news.publish(b"again")
            assert await anext(aiter(notes)) == b"again"


async def test_a_note_reaches_all_languages() -> None:
    async with served() as sides:
        news = sides.node.topic("news")
        async with meeting() as met:
            peer = await met.client.connect(await sides.node.listen("tcp://127.0.0.1:0"))
            async with peer.subscribe("news") as native, sides.client.subscribe("news") as notes:
                await news.publish({"n": 1})
                assert await anext(aiter(native)) == {"n": 1}
                assert await anext(aiter(notes)) == b"\xa1an\x01"


async def test_every_code() -> None:
    async with served() as sides:
        secret = sides.node.topic("secret")
        sides.node.topic("closed", allow=sides.node.node_id)
        sides.node.topic("broken").on_subscribe(_broken)

        @secret.on_subscribe
        async def decide(request: SubscribeRequest) -> str:
            if request.data != b"password":
                raise SubscribeRefused("no")
            return "welcome"

        for topic in ("secret", "closed", "broken"):
            with pytest.raises(SubscribeRefused) as rejected:
                async with sides.client.subscribe(topic):
                    raise AssertionError("accepted")
            assert rejected.value.data == (b"no" if topic == "secret" else None)
        async with sides.client.subscribe("secret", "password") as notes:
            assert notes.data == b"welcome"
            with pytest.raises(CallRefused) as refused:
                async with sides.client.subscribe("secret", "password"):
                    raise AssertionError("accepted")
            assert refused.value.code == 2
        with pytest.raises(CallRefused) as refused:
            async with sides.client.subscribe("nobody"):
                raise AssertionError("accepted")
        assert refused.value.code == 1


async def _broken(request: SubscribeRequest) -> None:
    raise RuntimeError("details")


async def test_both_sides_publish() -> None:
    async with served() as sides:
        theirs = sides.client.registrar.topic("theirs")
        async with sides.back.subscribe("theirs") as notes:
            await theirs.publish(b"from the client")
            assert await anext(aiter(notes)) == b"from the client"


async def test_a_subscription_is_read_once_and_ends() -> None:
    async with served() as sides:
        news = sides.node.topic("news")
        subscription = sides.client.subscribe("news")
        async with subscription as notes:
            with pytest.raises(ParleyError, match=r"cannot enter the subscription to .* again"):
                await subscription.__aenter__()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_first, notes)
                await settled()
                with pytest.raises(anyio.BusyResourceError):
                    await anext(aiter(notes))
                await news.publish(b"one")
        with pytest.raises(anyio.ClosedResourceError):
            await anext(aiter(notes))
        with pytest.raises(ConfigError):
            sides.client.subscribe("news", window=10)
        async with sides.client.subscribe("news") as notes:
            await news.publish(b"last")
            await sides.client.ping()  # the note has already arrived
            sides.back.drop()
            await sides.client.closed()
            assert await anext(aiter(notes)) == b"last"
            with pytest.raises(PeerClosedError):
                await anext(aiter(notes))
        with pytest.raises(PeerClosedError):
            await sides.client.subscribe("news").__aenter__()


async def _first(notes: SimProtoSubscription) -> None:
    assert await anext(aiter(notes)) == b"one"


async def test_giving_up_while_the_publisher_decides() -> None:
    async with served() as sides:
        news, go = sides.node.topic("news"), anyio.Event()

        @news.on_subscribe
        async def decide(request: SubscribeRequest) -> None:
            await go.wait()

        with pytest.raises(CallTimeout):
            await sides.client.subscribe("news", timeout=0.02).__aenter__()
        go.set()
        readings = sides.client.peer.sim.subscriptions
        await eventually(lambda: not readings._readers and not readings._leaving)
        assert not news.subscribers  # the reader had stopped waiting, so the subscription was left
        async with sides.client.subscribe("news") as notes:
            await news.publish(b"one")
            assert await anext(aiter(notes)) == b"one"


async def test_a_slow_reader_slows_its_publisher_and_loses_by_its_policy() -> None:
    async with served() as sides:
        news = sides.node.topic("news", slow="drop-oldest", buffer=64 * 1024, patience=0.0)
        async with sides.client.subscribe("news", window=64 * 1024) as notes:
            for number in range(1_000):
                await news.publish(b"%04d" % number + b"x" * 500)
            await settled()
            assert await sides.client.call("echo", b"meanwhile") == b"meanwhile"
            assert news.dropped > 100
            read = [await anext(aiter(notes)) for _ in range(1_000 - news.dropped)]
            assert read[0] is not None
            assert read[0][:4] == b"0000"
            assert read[-1] is not None
            assert read[-1][:4] == b"0999"
            assert read == sorted(read)  # type: ignore[type-var]  # bytes, all of them


async def test_a_reader_that_is_much_too_slow_is_cut_off() -> None:
    """The publisher doesn't wait for acknowledgements."""
    note = b"x" * 50_000
    async with served() as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        (peer,) = set(sides.gateway.peers) - {sides.back}

        async def publish() -> None:
            subscribe = await client.read()
            await client.send("response", data=b"\0", ident=subscribe.id)
            for _ in range(5):
                await client.send("notify", "raw", note)
            codes = [(await client.read()).payload for _ in range(3)]
            assert codes == [b"\0", b"\2", b"\2\3\0raw"]  # taken, not taken, unsubscribed

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish)
            notes = peer.subscribe("raw", window=64 * 1024)
            await notes.__aenter__()
        assert [await anext(aiter(notes)) for _ in range(2)] == [note] * 2
        with pytest.raises(StreamResetError) as reset:
            await anext(aiter(notes))
        assert reset.value.code == CloseCode.SLOW_CONSUMER
        await notes.__aexit__(None, None, None)


async def test_finish_waits_for_the_last_acknowledgement() -> None:
    async with served() as sides:
        news = sides.node.topic("news")
        async with sides.client.subscribe("news") as notes:
            for number in range(10):
                await news.publish(b"%d" % number)
            await news.finish()
            assert not news.subscribers
            assert [await anext(notes) for _ in range(10)] == [
                b"%d" % number for number in range(10)
            ]


def news(node: Node) -> None:
    """A topic that reports its number of subscribers."""
    count = [0]

    @node.topic("news").on_subscribe
    async def decide(request: SubscribeRequest) -> str:
        count[0] += 1
        return f"{request.data!r} {count[0]}"


def topic_of(server: restarts.Service) -> Any:
    return server.server.node.topics["news"]


async def test_it_goes_on_over_connections() -> None:
    async with (
        restarts.serving(restarts.simproto, news) as server,
        SimProtoClient(server.address, pauses=restarts.QUICK) as client,
    ):
        subscription = client.subscribe("news", "please")
        with pytest.raises(ParleyError, match="not subscribed"):
            subscription.peer.drop()
        async with subscription as notes:
            assert (notes.data, notes.cuts) == (b"b'please' 1", 0)
            assert notes.peer is client.peer
            await topic_of(server).publish(b"one")
            await topic_of(server).publish(b"two")
            assert await anext(notes) == b"one"
            await notes.peer.ping()  # the other note has already arrived
            server.cut()
            await eventually(lambda: client.sessions == 2)
            assert await anext(notes) == b"two"  # it had arrived
            assert notes.cuts == 0
            async with anyio.create_task_group() as tasks:
                read = await started(tasks, notes.__anext__)
                await topic_of(server).until(lambda: bool(topic_of(server).subscribers))
                await topic_of(server).publish(b"three")
            assert (read, notes.cuts, notes.data) == ([b"three"], 1, b"b'please' 2")
            async with anyio.create_task_group() as tasks:
                read = await started(tasks, notes.__anext__)
                await server.stop()
                await server.start()
                await topic_of(server).until(lambda: bool(topic_of(server).subscribers))
                await topic_of(server).publish(b"four")
            assert (read, notes.cuts) == ([b"four"], 2)
        assert not topic_of(server).subscribers
        with pytest.raises(anyio.ClosedResourceError):
            await anext(notes)


async def test_a_missing_topic_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley._node.gateways.simproto.subscription.PAUSES", restarts.QUICK)
    async with (
        restarts.serving(restarts.simproto, news) as server,
        SimProtoClient(server.address, pauses=restarts.QUICK) as client,
        client.subscribe("news") as notes,
    ):
        server.offer = lambda node: None
        await server.stop()
        await server.start()
        async with anyio.create_task_group() as tasks:
            read = await started(tasks, notes.__anext__)
            news(server.server.node)
            await topic_of(server).until(lambda: bool(topic_of(server).subscribers))
            await topic_of(server).publish(b"one")
        assert read == [b"one"]

        def refuse(node: Node) -> None:
            @node.topic("news").on_subscribe
            async def decide(request: SubscribeRequest) -> None:
                raise SubscribeRefused("not any more")

        server.offer = refuse
        await server.stop()
        await server.start()
        with pytest.raises(SubscribeRefused):
            await anext(notes)


async def test_leaving_it_while_there_is_no_connection() -> None:
    async with restarts.serving(restarts.simproto, news) as server:
        client = SimProtoClient(server.address, pauses=restarts.QUICK)
        async with client, anyio.create_task_group() as tasks:
            async with client.subscribe("news") as notes:
                await server.stop()
                with anyio.move_on_after(0.02) as scope:
                    await anext(notes)
                assert scope.cancelled_caught
                read = await started(tasks, notes.__anext__)
            await eventually(lambda: bool(read))
            assert isinstance(read[0], anyio.ClosedResourceError)
            late = client.subscribe("news", timeout=0.02)
            with pytest.raises(CallTimeout):
                await late.__aenter__()
            with pytest.raises(anyio.ClosedResourceError):
                await anext(late)
            await server.start()
            async with client.subscribe("news") as notes:
                read = await started(tasks, notes.__anext__)
                await client.close()
                await eventually(lambda: bool(read))
                assert isinstance(read[0], PeerClosedError)


async def test_subscribing_again_is_cancelled_at_any_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parley._node.gateways.simproto.subscription.PAUSES", restarts.QUICK)

    async def cancel() -> None:
        async with (
            restarts.serving(restarts.simproto, news) as server,
            SimProtoClient(server.address, pauses=restarts.QUICK) as client,
        ):
            for seconds in (0.0, 0.001, 0.003, 0.01, 0.02):
                async with client.subscribe("news") as notes:
                    server.cut()
                    with anyio.move_on_after(seconds):
                        await anext(notes)
                    async with anyio.create_task_group() as tasks:
                        read = await started(tasks, notes.__anext__)
                        while not read:  # a subscriber may be one that is given up just now
                            await topic_of(server).publish(b"on")
                            await settled()
                    assert read == [b"on"]
                await eventually(lambda: not topic_of(server).subscribers)

    with nothing_left():
        await cancel()
