"""A link to a server that is stopped, killed, restarted, or absent."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from parley import Backoff, Call, Node, Peer
from parley._crypto.identity import Identity, NodeId
from parley._node.errors import (
    CallTimeout,
    ConfigError,
    NotTrustedError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.peer import reconnecting
from parley._node.peer.reconnecting import MOST_HOOKS
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import AnyPeer, Candidate, Known, OneOf
from tests.node.network import PATIENCE, eventually, new_node, nothing_left, settled, started
from tests.node.peer.servers import QUICK, serving

pytestmark = pytest.mark.anyio

NOBODY = f"tcp://127.0.0.1:1#{Identity.create().node_id}"


def offer(node: Node) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    @node.on_call("hang")
    async def hang(call: Call) -> None:
        await anyio.sleep_forever()


async def test_a_link_is_up_again_after_each_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # a record would hold the peer that it names
    seen: list[object] = []

    async def restarts() -> None:
        async with serving(offer) as server, new_node() as node:
            async with node.link(server.address, pauses=QUICK) as link:
                assert "down" in repr(link)

                @link.on_up
                def up(peer: Peer) -> None:
                    seen.append("up")

                @link.on_down
                def down(why: Exception) -> None:
                    seen.append(type(why))

                for count, end in enumerate((server.stop, server.kill, server.stop), 1):
                    peer = await link.ready()
                    assert link.is_up
                    assert peer is link.peer
                    assert peer.node_id == server.identity.node_id
                    assert link.sessions == count
                    assert await link.call("echo", count) == count
                    await end()
                    await eventually(lambda: "down" in repr(link))
                    await server.start()
                await link.ready()
            assert link.is_over
            await eventually(lambda: not (server.node and server.node.peers))
        assert seen == ["up", PeerClosedError] * 3 + ["up"]

    with nothing_left():
        await restarts()


async def test_a_link_that_is_left_says_close() -> None:
    async with serving(offer) as server:
        for _ in range(20):
            async with new_node() as node, node.link(server.address) as link:
                await link.ready()
                assert await link.call("echo", 1) == 1
                assert server.node is not None
                (peer,) = server.node.peers
            ended = await peer.closed()
            assert (ended.code, ended.remote) == (CloseCode.NORMAL, True)
            await eventually(lambda: not (server.node and server.node.peers))


async def test_a_call_waits_for_the_connection() -> None:
    async with serving(offer) as server, new_node() as node:
        await server.stop()
        async with node.link(server.address, pauses=QUICK) as link:
            with pytest.raises(CallTimeout) as late:
                await link.call("echo", 1, timeout=0.05)
            assert isinstance(late.value.__cause__, UnreachableError)
            async with anyio.create_task_group() as tasks:
                answers = await started(tasks, lambda: link.call("echo", 2))
                assert not answers
                await server.start()
            assert answers == [2]


async def test_a_call_that_is_under_way_fails_with_its_session() -> None:
    async with (
        serving(offer) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):
        peer = await link.ready()
        async with anyio.create_task_group() as tasks:
            failed = await started(tasks, lambda: link.call("hang", timeout=None))
            await server.kill()
        assert isinstance(failed[0], PeerClosedError)
        await server.start()
        assert await link.call("echo", 3) == 3
        assert link.peer is not peer


async def test_who_waits_when_a_link_is_left() -> None:
    async with new_node() as node:
        link = node.link(NOBODY, pauses=QUICK)
        with pytest.raises(ParleyError, match="async with"):
            await link.call("echo")
        async with anyio.create_task_group() as tasks, link:
            waiting = await started(tasks, lambda: link.call("echo", timeout=None))
            ready = await started(tasks, link.ready)
        assert [type(one[0]) for one in (waiting, ready)] == [PeerClosedError] * 2
        with pytest.raises(PeerClosedError, match="link has ended"):
            await link.ready()
        with pytest.raises(ParleyError, match=r"cannot enter the link to .* again"):
            await link.__aenter__()


async def test_ready_tells_the_last_reason() -> None:
    stranger = Identity.create().node_id
    async with serving() as server, new_node() as node:
        place = server.address.partition("#")[0]
        async with node.link(NOBODY, pauses=QUICK) as link:
            with pytest.raises(UnreachableError):
                await link.ready(0.05)
            with pytest.raises(UnreachableError):
                await link.ready(attempts=1)
        # Another node than the one that is wanted: dialled on, with the longest pauses.
        slow = Backoff(first=0.001, longest=30.0)
        async with node.link(f"{place}#{stranger}", pauses=slow) as link:
            with pytest.raises(NotTrustedError):
                await link.ready(attempts=1)
            assert 15 <= link.pause <= 30
            assert link.attempts == 1


async def test_several_addresses_of_one_node() -> None:
    async with serving(offer) as server, new_node() as node:
        nowhere = NOBODY.partition("#")[0]
        place, _, node_id = server.address.partition("#")
        for first, *also in (
            [f"{nowhere}#{node_id}", place],
            [nowhere, server.address],
            [place, nowhere],
        ):
            trust = None if "#" in first + "".join(also) else AnyPeer()
            async with node.link(first, also=also, trust=trust, pauses=QUICK) as link:
                assert (await link.ready(attempts=1)).node_id == server.identity.node_id
                await server.stop()
                await server.start()
                assert await link.call("echo", 5) == 5


async def test_a_link_has_one_node_whoever_is_trusted() -> None:
    async with serving(offer) as server, new_node() as node:
        place = server.address.partition("#")[0]
        async with node.link(place, trust=AnyPeer(), pauses=QUICK) as link:
            await link.ready()
            await server.stop()
            server.identity = Identity.create()
            await server.start()
            await eventually(lambda: isinstance(link.error, NotTrustedError))
            assert not link.is_up


async def test_a_server_that_trusts_us_no_more() -> None:
    """Dialling again soon would fail; the link continues to dial all the same."""
    downs: list[Exception] = []
    async with serving(offer) as server, new_node() as node:
        assert server.node is not None
        pauses = Backoff(first=0.001, longest=30.0)
        async with node.link(server.address, pauses=pauses) as link:
            link.on_down(downs.append)
            peer = await link.ready()
            await server.node.change_trust(OneOf([]))
            for failed in (peer, None):
                await eventually(lambda: link.error is not None and link.pause >= 15)
                assert link.peer is None
                assert isinstance(link.error, NotTrustedError)
                assert link.error.code == CloseCode.AUTHENTICATION_FAILED
                sessions = link.sessions
                if failed is not None:
                    link.redial()
                    await eventually(lambda: link.sessions > sessions)  # noqa: B023 - awaited here
            await server.node.change_trust(AnyPeer())
            link.redial()
            assert await link.call("echo", 1) == 1
        assert {type(down) for down in downs} == {NotTrustedError}


async def test_a_node_that_we_trust_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """That it is the link's node does not make it trusted: what let it in is asked again."""
    known, members = KnownPeers(tmp_path / "known_peers"), set[NodeId]()

    async def hook(candidate: Candidate) -> bool:
        return candidate.node_id in members

    slow = Backoff(first=0.001, longest=30.0)
    async with serving(offer) as server, new_node() as node:
        place, node_id = server.address.partition("#")[0], server.identity.node_id
        known.add(node_id, None, datetime.now(UTC))
        members.add(node_id)
        async with (
            node.link(place, trust=Known(known), pauses=slow) as by_file,
            node.link(place, trust=hook, pauses=slow) as by_hook,
            node.link(server.address, pauses=slow) as pinned,
        ):
            for link in (by_file, by_hook, pinned):
                await link.ready()
            known.forget(node_id)
            members.clear()
            await node.review()
            # Although the links do not wait for it, the server is notified.
            told = "ended: authentication-failed (closed by the peer)"
            await eventually(lambda: caplog.text.count(told) == 2)
            for link, text in ((by_file, "it is not in"), (by_hook, "the accept hook refused")):
                for attempts in (1, 2):  # the session's end, and the next attempt
                    await eventually(lambda: link.attempts == attempts)  # noqa: B023 - awaited here
                    assert link.pause >= 15
                    assert isinstance(link.error, NotTrustedError)
                    assert text in link.error.text
                    assert (link.sessions, link.is_up) == (1, False)
                    if attempts == 1:
                        link.redial()
            assert pinned.is_up
            known.add(node_id, None, datetime.now(UTC))
            by_file.redial()
            assert await by_file.call("echo", 1) == 1


async def test_a_hook_does_not_change_the_node_of_a_link() -> None:
    async def anybody(candidate: Candidate) -> bool:
        return True

    async with serving(offer) as server, new_node() as node:
        place = server.address.partition("#")[0]
        async with node.link(place, trust=anybody, pauses=QUICK) as link:
            await link.ready()
            await server.stop()
            server.identity = Identity.create()
            await server.start()
            await eventually(lambda: isinstance(link.error, NotTrustedError))
            assert (link.sessions, link.is_up) == (1, False)


async def test_what_no_link_can_be_made_of() -> None:
    node, other = new_node(), Identity.create().node_id
    with pytest.raises(ConfigError, match="no node ID"):
        node.link("tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="different node IDs"):
        node.link(NOBODY, also=[f"tcp://127.0.0.1:2#{other}"])
    with pytest.raises(ConfigError, match="the limit is 16"):
        node.link(NOBODY, also=[f"tcp://127.0.0.1:{port}" for port in range(2, 18)])
    with pytest.raises(ParleyError, match="not running"):
        await node.link(NOBODY).__aenter__()


async def test_hooks_that_fail_and_hooks_that_stay(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []
    downs: list[Exception] = []
    async with (
        serving(offer) as server,
        new_node() as node,
        node.link(server.address, pauses=QUICK) as link,
    ):

        @link.on_up
        async def stays(peer: Peer) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append("stays")

        @link.on_up
        def fails(peer: Peer) -> None:
            raise ZeroDivisionError

        class Asks:
            async def __call__(self, peer: Peer) -> None:
                assert await peer.call("echo", 1) == 1
                raise ZeroDivisionError

        link.on_up(Asks())

        @link.on_down
        async def slow(why: Exception) -> None:
            downs.append(why)
            await anyio.sleep_forever()

        for count in (1, 2):
            await link.ready()
            while caplog.text.count("an on_up hook failed") < 2 * count:
                await settled()
            await server.kill()
            while len(ended) < count:
                await settled()
            await server.start()
        await link.ready()
        assert len(downs) == 1
        assert "which is still running" in caplog.text
        for _ in range(MOST_HOOKS - 1):
            link.on_down(print)
        with pytest.raises(ConfigError, match="the limit is 64"):
            link.on_down(print)
        with pytest.raises(ConfigError, match="not a function"):
            link.on_up(None)  # type: ignore[type-var]  # what a user may give


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting, "MOST_WAITING", 3)
    async with (
        new_node() as node,
        node.link(NOBODY, pauses=QUICK) as link,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(3):
            tasks.start_soon(link.call, "echo")
        await settled()
        with pytest.raises(LimitReachedError, match="3 requests are already waiting"):
            await link.call("echo")
        tasks.cancel_scope.cancel()


async def test_a_node_that_ends_takes_its_links_along(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def leave_open() -> None:
        async with serving(offer) as server:
            async with new_node() as node:
                up = await node.link(server.address, pauses=QUICK).__aenter__()
                down = await node.link(NOBODY, pauses=QUICK).__aenter__()
                await up.ready()
            assert up.is_over
            assert down.is_over
            assert not up.is_up
            await up.__aexit__(None, None, None)
            await eventually(lambda: not (server.node and server.node.peers))

    with nothing_left():
        await leave_open()


@pytest.mark.slow
async def test_a_link_is_cancelled_at_any_moment(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def cancel() -> None:
        async with serving(offer) as server, new_node() as node:
            for address in (server.address, NOBODY):
                for seconds in (0.0, 0.001, 0.004, 0.02):
                    with anyio.move_on_after(seconds) as scope:
                        async with node.link(address, pauses=QUICK) as link:
                            await link.call("hang", timeout=None)
                    assert scope.cancelled_caught
                    assert link.is_over
            link = node.link(server.address, pauses=QUICK)
            await link.__aenter__()
            await link.ready()
            await link.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
            await eventually(lambda: not (server.node and server.node.peers))
            assert not node.peers

    with anyio.fail_after(PATIENCE), nothing_left():
        await cancel()


async def test_a_link_whose_network_has_changed() -> None:
    async with (
        serving(offer, resume=30.0) as server,
        new_node(resume=30.0) as node,
        node.link(server.address, pauses=Backoff(first=60.0, longest=60.0)) as link,
    ):
        assert await link.call("echo", 1) == 1
        peer = await link.ready()
        link.redial()  # The session continues over another transport.
        await eventually(lambda: peer.resumes == 1)
        assert await link.call("echo", 2) == 2
        await server.stop()
        await eventually(lambda: link.peer is None and link.pause > 15)
        await server.start()
        link.redial()  # and the pause is over
        assert await link.call("echo", 3) == 3
        assert link.sessions == 2

    async with serving(offer) as server, new_node() as node, node.link(server.address) as link:
        await link.ready()
        link.redial()  # Without resuming there is no session to continue.
        assert await link.call("echo", 4) == 4
        assert link.sessions == 1
