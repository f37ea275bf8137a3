"""A file of known peers is checked for changes while peers that it accepted are connected.

Peers that were removed from it are disconnected after some checks. A file that is being written, or
is unreadable for a moment, causes no disconnections.
"""

import os
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley import Node, PublicIdentity
from parley._crypto.identity import Identity, NodeId
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FakeClock
from parley._node.trust.known_peers import KnownPeer, KnownPeers
from parley._node.trust.policies import FirstUse, Known, TrustPolicy
from parley._node.trust.watched_file import LOOK, MOST_LOOKS, UNREADABLE
from tests.inspection import reviews_of
from tests.node.network import eventually, new_node
from tests.node.trust.server_with_peers import ALICE, EVE, ServerWithPeers, server_with_peers

pytestmark = pytest.mark.anyio

LISTEN = "tcp://127.0.0.1:0"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


class Looked(KnownPeers):
    """Counts how often the file was checked."""

    looks = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.before: list[Callable[[], object]] = []  # what happens before it is read

    def lookup(self, node_id: NodeId) -> KnownPeer | None:
        while self.before:
            self.before.pop()()
        return super().lookup(node_id)

    def __iter__(self) -> Iterator[KnownPeer]:
        while self.before:
            self.before.pop()()
        return super().__iter__()

    def stamp(self) -> Hashable:
        self.looks += 1
        return super().stamp()


class OwnPolicy:
    """A policy as users write it, which uses the same file."""

    name = "own"
    allows_plaintext = False
    reads_files = True

    def __init__(self, known_peers: KnownPeers) -> None:
        self.known_peers = known_peers
        self._known = Known(known_peers)

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        self._known.check(peer, name)


POLICIES: list[Callable[[KnownPeers], TrustPolicy]] = [Known, FirstUse, OwnPolicy]


@dataclass(frozen=True, slots=True)
class Watch:
    """A server that trusts the peers in a file, on a fake clock. `editor` is the file in another
    process.
    """

    there: ServerWithPeers
    clock: FakeClock
    file: Looked
    editor: KnownPeers

    def text(self) -> str:
        return self.file.path.read_text()

    def write(self, text: str | None) -> None:
        """Write the file in place, as some editors do; None deletes it."""
        if text is None:
            self.file.path.unlink()
        else:
            self.file.path.write_text(text)

    async def look(self, times: int = 1) -> None:
        """Let the server check the file and act on it."""
        for _ in range(times):
            await self._rest()
            looks = self.file.looks
            self.clock.advance(LOOK)
            await eventually(lambda: self.file.looks > looks)  # noqa: B023 - awaited here
        await self._rest()

    async def _rest(self) -> None:
        reviews = reviews_of(self.there.server)
        await eventually(lambda: reviews.runner is None or bool(reviews.changes.waiters))

    @property
    def ids(self) -> set[NodeId | None]:
        return {peer.node_id for peer in self.there.server.peers}


BOTH = {ALICE.node_id, EVE.node_id}


@asynccontextmanager
async def watch(
    path: Path, policy: Callable[[KnownPeers], TrustPolicy] = Known
) -> AsyncIterator[Watch]:
    clock, file, editor = FakeClock(), Looked(path), KnownPeers(path)
    for identity in (ALICE, EVE):
        editor.add(identity.node_id, None, NOW)
    async with server_with_peers(policy(file), clock) as there:
        yield Watch(there, clock, file, editor)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "known_peers"


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
async def test_removed_peer_is_disconnected(
    policy: Callable[[KnownPeers], TrustPolicy], parted: bool, path: Path
) -> None:
    async with watch(path, policy) as on:
        if parted:
            await on.there.suspend()
        await on.look(3)
        assert on.ids == BOTH
        on.editor.forget(EVE.node_id)
        await on.look(2)
        assert on.ids == {ALICE.node_id}
        assert (await on.there.eve_there.closed()).code == CloseCode.PEER_NOT_TRUSTED
        assert [peer.node_id for peer in on.editor] == [ALICE.node_id]
        on.there.eve.live.lost("she gives up")
        await on.there.alice_stays()


async def test_peer_removed_before_the_first_check(path: Path) -> None:
    """The state of the file when a peer was accepted is unknown."""
    async with watch(path) as on:
        on.editor.forget(EVE.node_id)
        on.file.lookup(ALICE.node_id)  # reads the file, so that the cache is unchanged
        await on.look(2)
        assert on.ids == {ALICE.node_id}


async def test_file_missing_or_incomplete_for_a_moment(path: Path) -> None:
    async with watch(path) as on:
        await on.look(3)
        text = on.text()
        for content in (None, "", text[:100]):
            on.write(content)
            await on.look()
            on.write(text)
            await on.look(2)
            assert on.ids == BOTH
        on.write(None)  # permanently: all peers are unknown
        await on.look(2)
        assert on.ids == set()


@pytest.mark.parametrize("content", ["what is that?\n", "# with a line more\n"])
async def test_a_file_that_is_written_as_it_is_read(path: Path, content: str) -> None:
    """The file was stable when it was checked, but is empty when it is read."""
    async with watch(path) as on:
        await on.look(3)
        text = on.text()
        on.write(content if content.startswith("what") else text + content)
        await on.look()
        on.file.before.append(lambda: on.write(""))
        await on.look()
        assert not on.file.before
        assert on.ids == BOTH
        on.write(text)
        await on.look(2)
        assert on.ids == BOTH
        on.editor.forget(EVE.node_id)
        await on.look(2)
        assert on.ids == {ALICE.node_id}


async def test_a_file_that_changes_all_the_time(path: Path) -> None:
    """Unknown peers that connect one after another don't delay the check of a change."""
    async with watch(path) as on:
        await on.look(3)
        on.editor.forget(EVE.node_id)
        for _ in range(MOST_LOOKS):
            assert on.ids == BOTH
            on.editor.add(Identity.create().node_id, None, NOW)
            await on.look()
        assert on.ids == {ALICE.node_id}


async def test_a_file_that_cannot_be_read_for_a_while(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watch(path) as on:
        await on.look(3)
        text = on.text()
        for _ in range(2):
            on.write("what is that?\n")
            await on.look(int(UNREADABLE / LOOK))
            assert on.ids == BOTH
            # The peers don't learn anything else.
            await on.there.server.review()
            assert on.ids == BOTH
            # New connections are refused.
            again = await on.there.eve_node.connect(on.there.proxy.address)
            assert (await again.closed()).code == CloseCode.AUTHENTICATION_FAILED
            on.write(text)
            await on.look(2)
        assert on.ids == BOTH
        lines = [line for line in caplog.messages if "stay accepted for 30 s" in line]
        assert len(lines) == 2  # one for each time
        assert "known_peers, line 1: " in lines[0]
        on.editor.forget(EVE.node_id)
        await on.look(2)
        assert on.ids == {ALICE.node_id}


async def test_a_file_that_cannot_be_read_for_longer(path: Path) -> None:
    async with watch(path) as on:
        await on.look(3)
        on.write(None)
        os.mkdir(path)
        await on.look(2)
        assert on.ids == BOTH
        await on.look(int(UNREADABLE / LOOK))
        assert on.ids == set()
        assert "not a regular file" in (await on.there.alice_there.closed()).reason


async def test_a_directory_that_cannot_be_searched(path: Path) -> None:
    """The state of the file is also unreadable. (The test replaces the directory by a file, because
    root can search any directory.)
    """
    async with watch(path.parent / "in" / path.name) as on:
        await on.look(3)
        folder = path.parent / "in"
        os.rename(folder, path.parent / "kept")
        os.symlink(os.devnull, folder)
        await on.look(3)
        assert on.ids == BOTH
        os.unlink(folder)
        os.rename(path.parent / "kept", folder)
        await on.look(2)
        assert on.ids == BOTH
        on.editor.forget(EVE.node_id)
        await on.look(2)
        assert on.ids == {ALICE.node_id}


async def test_file_is_checked_only_while_peers_are_connected(path: Path) -> None:
    async with watch(path) as on:
        await on.look()
        for peer in (on.there.alice, on.there.eve):
            await peer.close()
        await eventually(lambda: not on.there.server.peers)
        reviews, looks = reviews_of(on.there.server), on.file.looks
        on.clock.advance(LOOK)
        await eventually(lambda: reviews.runner is None)
        on.clock.advance(LOOK)
        await on.clock.settle()
        assert on.file.looks == looks
        # It also works from the next failure on.
        assert await (await on.there.eve_node.connect(on.there.proxy.address)).ping() >= 0
        await on.look()
        assert on.file.looks > looks


async def test_review_of_peers_dialled_with_the_file(path: Path) -> None:
    """Each has a separate policy with the same file."""
    clock, known = FakeClock(), KnownPeers(path)
    async with (
        Node(ALICE, config=new_node().config, clock=clock) as node,
        new_node() as server,
        new_node() as other,
    ):
        places = [(await each.listen(LISTEN)).partition("#")[0] for each in (server, other)]
        peers = [await node.connect(place, trust=FirstUse(KnownPeers(path))) for place in places]
        known.forget(server.node_id)
        while peers[0].is_open:
            await clock.tick(LOOK)
        assert peers[1].is_open
        assert known.lookup(server.node_id) is None
