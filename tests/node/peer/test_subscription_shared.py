"""Several subscriptions of one program to one topic of a peer: they share a stream."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley import CallRefused, CallTimeout, Node, ResultCode, StreamResetError, Subscription
from parley._node.testing import connect_nodes
from tests.node.network import eventually, meeting, new_node
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio


async def take(sub: Any, count: int) -> list[Any]:
    with anyio.fail_after(10):
        return [await anext(sub) for _ in range(count)]


async def read_all(sub: Any) -> tuple[int, str]:
    """Read all available notes, and return their number and the reason for the end."""
    read = 0
    with anyio.fail_after(10):
        try:
            while True:
                read += len(await sub.next_batch())
        except StreamResetError as error:
            return read, str(error)


async def test_each_gets_all_notes_from_when_it_joined() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        async with met.peer.subscribe("x") as first:
            await topic.publish(1)
            assert await take(first, 1) == [1]
            await topic.publish(2)
            await eventually(lambda: bool(first.inbox))
            async with met.peer.subscribe("x") as second, met.peer.subscribe("x") as third:
                assert len(topic.subscribers) == 1
                for note in range(3, 10):
                    await topic.publish(note)
                assert await take(first, 8) == list(range(2, 10))
                assert await take(second, 7) == await take(third, 7) == list(range(3, 10))
            await topic.publish("alone")
            assert await take(first, 1) == ["alone"]
        await eventually(lambda: not topic.subscribers)


async def test_the_first_can_leave() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        first = met.peer.subscribe("x")
        await first.__aenter__()
        async with met.peer.subscribe("x") as second:
            await topic.publish("unread by the first")
            await eventually(lambda: bool(second.inbox))
            await first.__aexit__(None, None, None)
            async with met.peer.subscribe("x") as third:
                await topic.publish("more")
                assert await take(second, 2) == ["unread by the first", "more"]
                assert await take(third, 1) == ["more"]
        await eventually(lambda: not topic.subscribers)


async def test_both_on_their_way() -> None:
    async with meeting() as met:
        topic, begun, got = met.server.topic("x"), list[int](), list[list[Any]]()

        async def read(number: int) -> None:
            async with met.peer.subscribe("x") as sub:
                begun.append(number)
                got.append(await take(sub, 1))

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(read, number)
            await eventually(lambda: len(begun) == 3)  # else one has left before others join
            await topic.publish("for all")
        assert got == [["for all"]] * 3


@pytest.mark.parametrize("turns", range(8))
async def test_the_first_is_cancelled_while_others_wait(turns: int) -> None:
    async with meeting() as met:
        topic = met.server.topic("x")

        scope, got = anyio.CancelScope(), list[Any]()

        async def hold() -> None:
            with scope:
                async with met.peer.subscribe("x"):
                    await anyio.sleep_forever()

        async def read() -> None:
            async with met.peer.subscribe("x") as sub:
                await topic.publish(1)
                got.extend(await take(sub, 1))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await checkpoint()
            tasks.start_soon(read)
            for _ in range(turns):
                await checkpoint()
            scope.cancel()
        assert got == [1]


async def test_the_wait_for_another_to_be_accepted_has_the_timeout() -> None:
    async with meeting() as met:
        topic, asked = met.server.topic("x"), anyio.Event()

        @topic.on_subscribe
        async def never(request: Any) -> None:
            asked.set()
            await anyio.sleep_forever()

        async def wait() -> None:
            with pytest.raises(CallTimeout):
                await met.peer.subscribe("x", timeout=0.1).__aenter__()

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(met.peer.subscribe("x", timeout=None).__aenter__)
                await asked.wait()
                await wait()
                scope.cancel()
        assert scope.cancelled_caught


async def test_unread_notes_of_the_first_leave_the_others_their_window() -> None:
    async with meeting() as met:
        topic = met.server.topic("x", patience=100)
        note, count = bytes(1_000), 100
        async with met.peer.subscribe("x", window=20_000) as first:
            for _ in range(count):  # what doesn't fit in the window waits at the publisher
                await topic.publish(note)
            await eventually(lambda: bool(first.inbox))
            async with met.peer.subscribe("x") as second:
                assert len(await take(second, 30)) == 30


async def test_one_that_leaves_while_reading_leaves_the_others_their_window() -> None:
    async with meeting() as met:
        topic = met.server.topic("x", patience=100)
        first = met.peer.subscribe("x", window=4_000)
        await first.__aenter__()
        async with met.peer.subscribe("x"):
            await topic.publish(bytes(5_000))
            await take(first, 1)  # its credit returns when the next note is read
            async with met.peer.subscribe("x") as third:
                await first.__aexit__(None, None, None)
                await topic.publish(bytes(5_000))
                assert len(await take(third, 1)) == 1


async def test_credit_returns_as_the_fastest_reads_and_a_slow_one_loses_only_itself() -> None:
    async with meeting() as met:
        topic = met.server.topic("x", patience=100)
        note = bytes(1_000)
        count = 300  # 300 kB through a window of 20 kB

        async def publish() -> None:
            for _ in range(count):
                await topic.publish(note)

        async with (
            met.peer.subscribe("x", window=20_000) as fast,
            met.peer.subscribe("x") as slow,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(publish)
            assert await take(fast, count) == [note] * count
            read, error = await read_all(slow)
            assert "reads this topic faster" in error
            assert 20 <= read <= 200
            assert topic.dropped == 0
        held = met.peer.core.account.held
        assert held == 0


async def test_the_end_and_a_lost_connection_are_for_all() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        async with met.peer.subscribe("x") as first, met.peer.subscribe("x") as second:
            await topic.publish(1)
            topic.close()
            for sub in (first, second):
                assert [note async for note in sub] == [1]


@pytest.mark.parametrize("options", [{"keep": 3}, {"state": lambda: 1}])
async def test_what_the_publisher_answers_by_itself_is_refused(options: dict[str, Any]) -> None:
    async with meeting() as met:
        met.server.topic("x", **options)
        async with met.peer.subscribe("x") as first:
            with pytest.raises(CallRefused) as refused:
                await met.peer.subscribe("x").__aenter__()
            assert refused.value.code == 2
            assert isinstance(first, Subscription)


async def test_over_a_link() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        address = await met.server.listen("memory://shared")
        async with (
            met.client.link(address) as link,
            link.subscribe("x") as first,
            link.subscribe("x") as second,
        ):
            await topic.publish(1)
            assert await take(first, 1) == await take(second, 1) == [1]


OPTIONS: dict[str, dict[str, Any]] = {
    "remembers": {"keep": 2},
    "by key": {"keep_last_by": lambda note: note % 2},
    "state": {"state": lambda: "state"},
    "state, and remembers": {"keep": 2, "state": lambda: "state"},
    "accepts with data": {},
}


@pytest.mark.parametrize("name", OPTIONS)
async def test_another_connection_has_its_own_answer(name: str) -> None:
    async with meeting() as met:
        topic = met.server.topic("x", **OPTIONS[name])

        @topic.on_subscribe
        def accept(request: Any) -> Any:
            return request.data

        for note in range(1, 6):
            await topic.publish(note)
        data = "mine" if name == "accepts with data" else None
        replayed = [] if "state" in OPTIONS[name] or not OPTIONS[name] else [4, 5]
        another, _ = await connect_nodes(met.client, met.server)
        async with met.peer.subscribe("x", data) as first:
            assert await take(first, len(replayed)) == replayed
            with pytest.raises(CallRefused, match="over another connection") as refused:
                await met.peer.subscribe("x", data).__aenter__()
            assert refused.value.code == ResultCode.ALREADY_SUBSCRIBED
            async with another.subscribe("x", data and "another") as second:
                await topic.publish(6)
                assert await take(first, 1) == [6]
                assert await take(second, len(replayed) + 1) == [*replayed, 6]
                expected = ("state", "state") if "state" in OPTIONS[name] else (None, None)
                assert (first.data, second.data) == (("mine", "another") if data else expected)
                assert (first.gaps, second.gaps) == (0, 0)


async def test_subscriptions_with_different_data_do_not_share() -> None:
    async with meeting() as met:
        topic = met.server.topic("x")
        async with met.peer.subscribe("x", "a") as first:
            with pytest.raises(CallRefused, match="over another connection"):
                await met.peer.subscribe("x", "b").__aenter__()
            async with met.peer.subscribe("x", "a") as second:
                await topic.publish(1)
                assert await take(first, 1) == await take(second, 1) == [1]


async def test_another_link_has_its_own_answer() -> None:
    def news(node: Node) -> None:
        node.topic("news", keep=10)

    async with (
        serving(news) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        node.link(server.address, pauses=QUICK) as another,
        link.subscribe("news") as first,
        another.subscribe("news") as second,
    ):
        assert server.node is not None
        topic = server.node.topics["news"]
        await topic.publish(1)
        assert await take(first, 1) == await take(second, 1) == [1]
        with pytest.raises(CallRefused, match="over another connection"):
            await link.subscribe("news").__aenter__()
        await (await first.ready(10)).close()
        await topic.publish(2)
        assert await take(first, 1) == await take(second, 1) == [2]
