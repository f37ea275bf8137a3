"""Tests of node/cli/link.py: reports about a link that is cut, resumed, down and restored."""

from typing import Any

import anyio
import pytest

from parley import Backoff
from parley._crypto.identity import Identity
from parley._node.cli.link import LinkReporter
from parley._node.errors import NotTrustedError, PeerClosedError, UnreachableError
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyProxy
from tests.node.network import eventually, new_node, settled, started
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio

RESUME = 30.0


class Screen:
    """Records the kinds and the fields of all reports."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.free = anyio.Event()
        self.free.set()

    def hold(self) -> None:
        """Block reports from now on until `free`."""
        before, self.free = self.free, anyio.Event()
        before.set()

    async def tell(self, text: str, kind: str, /, **fields: Any) -> None:
        self.kinds.append(kind)
        self.lines.append((text, fields))
        await self.free.wait()

    async def has(self, *kinds: str) -> None:
        """Wait for exactly these reports."""
        await eventually(lambda: len(self.kinds) >= len(kinds))
        assert self.kinds == list(kinds)


async def test_a_session_that_is_cut_and_goes_on(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving(resume=RESUME) as server,
        new_node(resume=RESUME) as node,
        FaultyProxy(server.address) as proxy,
        node.link(proxy.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        await peer.ping()  # before anything has come a session cannot be resumed
        tasks.start_soon(LinkReporter(link, screen.tell).follow, peer)
        for count in (1, 2):
            screen.kinds.clear()
            proxy.cut()
            await screen.has("suspended", "resumed")
            text, fields = screen.lines[-2]
            assert fields["text"]
            assert text == f"connection lost: {fields['text']}; reconnecting"
            text, fields = screen.lines[-1]
            assert fields == {"number": count, "seconds": peer.live.suspended_for}
            assert text.startswith("connection restored after ")
        tasks.cancel_scope.cancel()


async def test_a_cut_at_which_nobody_looked_is_told_all_the_same(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving(resume=RESUME) as server,
        new_node(resume=RESUME) as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        tasks.start_soon(LinkReporter(link, screen.tell).follow, peer)
        await settled()
        screen.hold()
        peer.redial()
        await screen.has("suspended")
        await eventually(lambda: peer.resumes == 1)
        screen.hold()  # and lets the first line go
        await screen.has("suspended", "resumed")
        peer.redial()
        await eventually(lambda: peer.resumes == 2)
        screen.free.set()
        await screen.has("suspended", "resumed", "suspended", "resumed")
        assert [fields.get("number") for _, fields in screen.lines] == [None, 1, None, 2]
        tasks.cancel_scope.cancel()


async def test_a_server_that_is_started_anew(anyio_backend: str) -> None:
    # Long enough for each state to be reported.
    screen, pauses = Screen(), Backoff(first=0.1, longest=0.1)
    async with (
        serving() as server,
        new_node() as node,
        node.link(server.address, pauses=pauses) as link,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(LinkReporter(link, screen.tell).follow, await link.ready())
        await server.stop()
        await screen.has("disconnected", "disconnected")
        (text, first), (_, second) = screen.lines
        assert "going away" in first["text"]
        assert "nothing is listening" in second["text"]
        assert 0.05 <= first["again_in"] <= 0.1
        assert text == f"{first['text']}; retrying in {first['again_in']:.1f} s"
        await server.start()
        await eventually(lambda: screen.kinds[-1] == "connected")
        text, fields = screen.lines[-1]
        assert fields["node_id"] == str(server.identity.node_id)
        assert fields["seconds"] > 0
        assert text.endswith(" s, in a new session")
        tasks.cancel_scope.cancel()


async def test_a_session_beside_one_that_is_suspended(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving(resume=RESUME) as server,
        new_node(resume=RESUME) as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        await peer.ping()
        tasks.start_soon(LinkReporter(link, screen.tell).follow, peer)
        await settled()
        await server.kill()
        await screen.has("suspended")
        await server.start()
        await screen.has("suspended", "connected")
        tasks.cancel_scope.cancel()


async def test_another_node_in_its_place_is_not_waited_for(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving() as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        ended = await started(tasks, lambda: LinkReporter(link, screen.tell).follow(peer))
        await server.stop()
        server.identity = Identity.create()
        await server.start()
        await eventually(lambda: bool(ended))
        assert isinstance(ended[0], NotTrustedError)


@pytest.mark.parametrize("resume", [0.0, 0.1])
async def test_patience_that_is_over_at_once(anyio_backend: str, resume: float) -> None:
    async with (
        serving(resume=resume) as server,
        new_node(resume=resume) as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer, screen = await link.ready(), Screen()
        await peer.ping()
        news = LinkReporter(link, screen.tell, patience=0)
        ended = await started(tasks, lambda: news.follow(peer))
        await server.kill()
        await eventually(lambda: bool(ended))
        assert isinstance(ended[0], PeerClosedError)
        assert ended[0].code == CloseCode.CONNECTION_LOST
        assert screen.kinds == []


async def test_patience_ends_with_the_last_reason_and_begins_anew(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving() as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        news = LinkReporter(link, screen.tell, patience=0.5)
        ended = await started(tasks, lambda: news.follow(peer))
        await server.stop()
        await server.start()
        await eventually(lambda: "connected" in screen.kinds)
        await server.stop()
        await eventually(lambda: bool(ended))
        assert isinstance(ended[0], UnreachableError)
        assert screen.kinds[-1] == "disconnected"


async def test_what_is_not_wanted_any_more_is_not_missed(anyio_backend: str) -> None:
    screen = Screen()
    async with (
        serving() as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        peer = await link.ready()
        news = LinkReporter(link, screen.tell, lambda: False, patience=0)
        ended = await started(tasks, lambda: news.follow(peer))
        await server.stop()
        await eventually(lambda: link.attempts > 1)
        assert (screen.kinds, ended) == ([], [])
        tasks.cancel_scope.cancel()


async def test_a_link_that_has_ended(anyio_backend: str) -> None:
    screen = Screen()
    async with serving() as server, new_node() as node, anyio.create_task_group() as tasks:
        async with node.link(server.address, pauses=QUICK) as link:
            peer = await link.ready()
            ended = await started(tasks, lambda: LinkReporter(link, screen.tell).follow(peer))
        await eventually(lambda: ended == [None])
        assert screen.kinds == []
