"""Events that are emitted over a link: they wait for the connection, and their replies end with the
session."""

from collections.abc import AsyncIterator

import anyio
import pytest

from parley import NamedEvent, Node, ParleyError
from parley._node.errors import CallTimeout, PeerClosedError, UnreachableError
from parley._node.peer import reconnecting
from parley._node.protocol.errors import LimitReachedError
from tests.node.network import new_node, started
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio

heard: list[object] = []


def offer(node: Node) -> None:
    @node.on("echo")
    async def echo(event: NamedEvent) -> object:
        heard.append(event.data)
        return event.data

    @node.on("three")
    async def three(event: NamedEvent) -> AsyncIterator[int]:
        for number in range(3):
            yield number

    @node.on("hang")
    async def hang(event: NamedEvent) -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()


async def test_events_are_emitted_once_there_is_a_connection() -> None:
    heard.clear()
    async with serving(offer) as server, new_node() as node:
        await server.stop()
        async with node.link(server.address, pauses=QUICK) as link:
            async with anyio.create_task_group() as tasks:

                async def emit() -> None:
                    await link.emit("echo", "sent")

                async def read() -> list[object]:
                    return [reply.data async for reply in link.emit("three").replies()]

                sent = await started(tasks, emit)
                reply = await started(tasks, link.emit("echo", "asked").reply)
                replies = await started(tasks, read)
                assert sent == reply == replies == []
                await server.start()
            assert sent == [None]
            assert reply[0].data == "asked"  # type: ignore[union-attr]  # a Reply
            assert replies == [[0, 1, 2]]
            assert sorted(map(str, heard)) == ["asked", "sent"]
            # And again, over the session that there is.
            assert (await link.emit("echo", 1).reply()).data == 1


async def test_replies_end_with_their_session() -> None:
    async with (
        serving(offer) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):
        replies = link.emit("hang").replies()
        assert (await anext(replies)).data == 1
        async with link.emit("hang").replies() as left:
            assert (await anext(left)).data == 1
        await server.kill()
        with pytest.raises(PeerClosedError):
            await anext(replies)
        await server.start()
        assert (await link.emit("echo", 1).reply()).data == 1


async def test_no_connection_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(offer) as server, new_node() as node:
        await server.stop()
        link = node.link(server.address, pauses=QUICK)
        with pytest.raises(ParleyError, match="async with"):
            await link.emit("echo")
        async with anyio.create_task_group() as tasks, link:
            with pytest.raises(CallTimeout) as late:
                await link.emit("echo").reply(timeout=0.05)
            assert isinstance(late.value.__cause__, UnreachableError)
            with pytest.raises(CallTimeout):
                await anext(link.emit("echo").replies(timeout=0.05))
            unread = link.emit("echo").replies()
            unread.close()
            with pytest.raises(TimeoutError), anyio.fail_after(0.05):
                await link.emit("echo")
            monkeypatch.setattr(reconnecting, "MOST_WAITING", 1)
            waiting = await started(tasks, link.emit("echo").reply)
            with pytest.raises(LimitReachedError, match="1 requests are already waiting"):
                await link.emit("echo").reply()
        assert isinstance(waiting[0], PeerClosedError)
