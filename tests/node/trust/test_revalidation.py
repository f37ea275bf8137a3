"""Revalidation: a peer that is no longer trusted is disconnected; all others stay."""

import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from parley import Identity, Node, NodeId, PublicIdentity
from parley._node.errors import ConfigError, ParleyError, PeerClosedError
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.trust import revalidation as reviews
from parley._node.trust import watched_file
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.policies import (
    AcceptHook,
    AnyPeer,
    Candidate,
    FirstUse,
    Known,
    OneOf,
    TrustPolicy,
)
from tests.node.network import eventually, new_node, nothing_left, settled, started
from tests.node.trust.server_with_peers import ALICE, EVE, Members, server_with_peers

pytestmark = pytest.mark.anyio

LISTEN = "tcp://127.0.0.1:0"
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ONLY_ALICE = OneOf({ALICE.node_id})

# Policies that accept both peers, and the action after which Eve is refused.
Case = tuple[TrustPolicy | AcceptHook, Callable[[Node], Awaitable[None]]]


def any_peer(known: KnownPeers) -> Case:
    return AnyPeer(), lambda node: node.change_trust(ONLY_ALICE)


def one_of(known: KnownPeers) -> Case:
    both = OneOf({ALICE.node_id, EVE.node_id})
    return both, lambda node: node.change_trust(ONLY_ALICE)


def in_the_file(known: KnownPeers) -> Case:
    for identity in (ALICE, EVE):
        known.add(identity.node_id, None, NOW)
    return Known(known), forgetting(known)


def first_use(known: KnownPeers) -> Case:
    return FirstUse(known), forgetting(known)


def own_policy(known: KnownPeers) -> Case:
    return expelling(Members())


def own_policy_in_a_thread(known: KnownPeers) -> Case:
    return expelling(Members(reads_files=True))


def hook(known: KnownPeers) -> Case:
    members = Members()

    async def decide(candidate: Candidate) -> bool:
        assert (candidate.address, candidate.dialled) == ("127.0.0.1", False)
        await anyio.sleep(0.001)
        return candidate.node_id in members.ids

    return decide, expelling(members)[1]


def forgetting(known: KnownPeers) -> Callable[[Node], Awaitable[None]]:
    async def change(node: Node) -> None:
        assert KnownPeers(known.path).forget(EVE.node_id)
        await node.review()
        # A recheck doesn't record a peer.
        assert [peer.node_id for peer in known] == [ALICE.node_id]

    return change


def expelling(members: Members) -> Case:
    async def change(node: Node) -> None:
        members.ids.remove(EVE.node_id)
        await node.review()

    return members, change


KINDS = [any_peer, one_of, in_the_file, first_use, own_policy, own_policy_in_a_thread, hook]
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def known(tmp_path: Path) -> KnownPeers:
    return KnownPeers(tmp_path / "known_peers")


def assert_logged(caplog: pytest.LogCaptureFixture, node_id: NodeId) -> None:
    (line,) = [line for line in caplog.messages if "peer-not-trusted" in line]
    assert line.startswith(f"peer {node_id.short} ended: peer-not-trusted (")
    assert str(node_id) in line


@EACH_KIND
async def test_connected_session_is_ended(
    kind: Callable[[KnownPeers], Case], known: KnownPeers, caplog: pytest.LogCaptureFixture
) -> None:
    trust, change = kind(known)
    async with server_with_peers(trust) as there:
        await change(there.server)
        with pytest.raises(PeerClosedError) as caught:
            await there.eve_there.call("x")
        assert caught.value.code == CloseCode.PEER_NOT_TRUSTED
        assert_logged(caplog, EVE.node_id)
        # She gets the same information as at a handshake.
        ended = await there.eve.closed()
        assert (ended.code, ended.text, ended.remote) == (5, "", True)
        await there.alice_stays()
        # For them, a later session is like the first.
        again = await there.eve_node.connect(there.proxy.address)
        if kind is first_use:
            assert await again.call("echo", 1) == 1
        else:
            assert (await again.closed()).code == CloseCode.AUTHENTICATION_FAILED


@EACH_KIND
async def test_suspended_session_is_ended(
    kind: Callable[[KnownPeers], Case], known: KnownPeers, caplog: pytest.LogCaptureFixture
) -> None:
    trust, change = kind(known)
    async with server_with_peers(trust) as there:
        await there.suspend()
        await change(there.server)
        assert (await there.eve_there.closed()).code == CloseCode.PEER_NOT_TRUSTED
        assert_logged(caplog, EVE.node_id)
        await there.alice_stays()
        # Her attempt to resume is answered as if the session had never existed.
        await there.eve.live.changes.until(lambda: there.eve.live.unknown)
        assert there.eve.is_suspended
        there.eve.live.lost("she gives up")


async def test_closed_but_resumable_session_is_ended() -> None:
    members = Members()
    async with server_with_peers(members) as there:
        there.proxy.to_client.stall()
        async with anyio.create_task_group() as tasks:
            for peer in (there.alice_there, there.eve_there):
                tasks.start_soon(peer.close, 70, "enough")
            await eventually(lambda: not (there.alice_there.is_open or there.eve_there.is_open))
            members.ids.remove(EVE.node_id)
            await there.server.review()
            there.proxy.cut()  # and the Closes with it
            there.proxy.resume()
            assert (await there.alice.closed()).text == "enough"
            await there.eve.live.changes.until(lambda: there.eve.live.unknown)
            there.eve.live.lost("she gives up")


async def test_review_of_dialled_peers(known: KnownPeers) -> None:
    """Each is rechecked by the policy that accepted it; pinned peers stay."""
    async with new_node() as node, new_node() as server, new_node() as other:
        place = str(Address.parse(await server.listen(LISTEN)).without_node_id())
        pinned = await node.connect(server.addresses[0])
        met = await node.connect(place, trust=FirstUse(known))
        elsewhere = await node.connect(await other.listen(LISTEN))
        assert known.by_name(place) is not None
        await node.review()
        assert met.is_open
        known.forget(server.node_id)
        await node.review()
        assert (await met.closed()).code == CloseCode.PEER_NOT_TRUSTED
        await eventually(lambda: len(server.peers) == 1)
        assert len(known) == 0
        await node.change_trust(OneOf([]))  # applies to peers that dialled us
        assert set(node.peers) == {pinned, elsewhere}


async def test_name_that_now_belongs_to_another_peer(known: KnownPeers) -> None:
    async with new_node() as node, new_node() as server:
        place = str(Address.parse(await server.listen(LISTEN)).without_node_id())
        peer = await node.connect(place, trust=FirstUse(known))
        known.rename(server.node_id, "somebody")
        await node.review()
        assert peer.is_open
        known.add(EVE.node_id, place, NOW)
        await node.review()
        assert "HAS CHANGED" in (await peer.closed()).reason


async def test_unencrypted_peers_are_not_asked_about() -> None:
    async with new_node(plaintext="only") as node, new_node(plaintext="only") as other:
        peer = await other.connect(await node.listen(LISTEN), trust=AnyPeer())
        await eventually(lambda: bool(node.peers))
        with pytest.raises(ConfigError, match="'one-of' with plaintext"):
            await node.change_trust(OneOf([]))
        with pytest.raises(ConfigError, match="an async function"):
            await node.change_trust(7)  # type: ignore[arg-type]  # that is the test
        assert isinstance(node.trust, AnyPeer)
        await node.review()
        assert await peer.ping() < 5


async def test_stopped_node_cannot_review() -> None:
    node = new_node()
    for _ in range(2):
        with pytest.raises(ParleyError, match="not running"):
            await node.review()
        async with node:
            await node.review()


# An error counts as a refusal.


async def fails(candidate: Candidate) -> bool:
    raise KeyError("what only the log may know")


async def hangs(candidate: Candidate) -> bool:
    await anyio.sleep_forever()
    return True


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (fails, "the accept hook failed"),
        (hangs, "the accept hook did not decide"),
    ],
)
async def test_a_hook_that_has_no_answer(
    answer: AcceptHook, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    second = False

    async def decide(candidate: Candidate) -> bool | None:
        return await answer(candidate) if second and candidate.node_id == EVE.node_id else True

    async with server_with_peers(decide, accept_timeout=0.05) as there:
        second = True
        await there.server.review()
        assert text in (await there.eve_there.closed()).reason
        assert (await there.eve.closed()).code == CloseCode.AUTHENTICATION_FAILED
        await there.alice_stays()
    assert ("what only the log may know" in caplog.text) == (answer is fails)


class Broken(Members):
    """A policy that raises an unexpected error when Eve is rechecked."""

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        super().check(peer, name)
        if self.checks > 2 and peer.node_id == EVE.node_id:
            raise KeyError("what only the log may know")


@pytest.mark.parametrize("reads_files", [False, True])
async def test_a_policy_that_fails(reads_files: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with server_with_peers(Broken(reads_files=reads_files)) as there:
        await there.server.review()
        assert (await there.eve_there.closed()).reason == "trust policy 'members' failed"
        await there.alice_stays()
    assert "what only the log may know" in caplog.text


class Slow(Members):
    """A policy that doesn't return when Eve is rechecked."""

    def __init__(self) -> None:
        super().__init__(reads_files=True)
        self.enough = threading.Event()

    def check(self, peer: PublicIdentity, name: str | None) -> None:
        super().check(peer, name)
        if self.checks > 2 and peer.node_id == EVE.node_id:
            self.enough.wait(20)


async def test_a_policy_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (reviews, watched_file):
        monkeypatch.setattr(module, "UNREADABLE", 0.1)
    slow = Slow()
    async with server_with_peers(slow) as there:
        try:
            await there.server.review()
            assert "did not answer in 0.1 s" in (await there.eve_there.closed()).reason
        finally:
            slow.enough.set()


# Peers that connect or leave during a check.


class LaterAlone:
    """A hook that accepts everyone. Once `second` is set, it waits for `enough` and accepts only
    Alice.
    """

    def __init__(self) -> None:
        self.second = False
        self.outgoing, self.enough = anyio.Event(), anyio.Event()

    async def decide(self, candidate: Candidate) -> bool:
        if self.second:
            self.outgoing.set()
            await self.enough.wait()
        return not self.second or candidate.node_id == ALICE.node_id


async def test_pending_decision_is_restarted() -> None:
    """The data that the hook used in a handshake may be outdated when it returns."""
    members, asked, enough = {EVE.node_id}, 0, anyio.Event()

    async def decide(candidate: Candidate) -> bool:
        nonlocal asked
        found = candidate.node_id in members
        asked += 1
        await enough.wait()
        return found

    async with new_node(decide) as server, Node(EVE, config=server.config) as eve:
        peer = await eve.connect(await server.listen(LISTEN))
        await eventually(lambda: asked == 1)
        members.clear()
        await server.review()  # it doesn't wait for a handshake
        enough.set()
        assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED
        assert asked == 2


@pytest.mark.parametrize("to", [ONLY_ALICE, Members(reads_files=True)])
async def test_trust_change_applies_to_pending_handshakes(to: TrustPolicy) -> None:
    asked, enough = anyio.Event(), anyio.Event()

    async def decide(candidate: Candidate) -> bool:
        asked.set()
        await enough.wait()
        return to is not ONLY_ALICE  # and the new one doesn't either

    async with new_node(decide) as server, Node(ALICE, config=server.config) as alice:
        peer = await alice.connect(await server.listen(LISTEN))
        await asked.wait()
        await server.change_trust(to)
        enough.set()
        assert await peer.ping() < 5


async def test_a_peer_that_ends_while_it_is_asked_about() -> None:
    hook = LaterAlone()
    async with server_with_peers(hook.decide) as there:
        hook.second = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.server.review)
            await hook.outgoing.wait()
            await there.eve.close()
            assert (await there.eve_there.closed()).code == CloseCode.NORMAL
            hook.enough.set()
        await there.alice_stays()


async def test_refusal_of_a_replaced_policy_is_ignored() -> None:
    """The hook refuses Eve, but another policy, set in the meantime, trusts her."""
    hook = LaterAlone()
    async with server_with_peers(hook.decide) as there:
        hook.second = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(there.server.review)
            await hook.outgoing.wait()
            tasks.start_soon(there.server.change_trust, AnyPeer())
            await settled()
            hook.enough.set()
        assert len(there.server.peers) == 2


# Concurrency.


async def test_request_during_a_review_waits_for_the_next() -> None:
    asked, running, most, enough = 0, 0, 0, anyio.Event()

    async def decide(candidate: Candidate) -> bool:
        nonlocal asked, running, most
        asked, running = asked + 1, running + 1
        most = max(most, running)
        if asked > 2:
            await enough.wait()
        running -= 1
        return True

    async with server_with_peers(decide) as there:
        async with anyio.create_task_group() as tasks:
            first = await started(tasks, there.server.review)
            others = [await started(tasks, there.server.review) for _ in range(3)]
            assert (asked, most) == (4, 2)
            assert [first, *others] == [[], [], [], []]
            enough.set()
        assert (asked, most) == (6, 2)  # the three share one policy
        assert [first, *others] == [[None]] * 4


async def test_hooks_are_asked_about_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "CONCURRENT_HOOKS", 3)
    second, running, most = False, 0, 0

    async def decide(candidate: Candidate) -> bool:
        nonlocal running, most
        if second:
            running += 1
            most = max(most, running)
            await anyio.sleep(0.005)
            running -= 1
        return not second

    async with new_node(decide) as server, new_node() as node:
        address = await server.listen(LISTEN)
        for _ in range(8):
            await node.connect(address)
        await eventually(lambda: len(server.peers) == 8)
        second = True
        await server.review()
        assert (server.peers, running, most) == ([], 0, 3)


async def test_other_tasks_run_during_large_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "BATCH_SIZE", 2)
    turns: list[int] = []
    members = Members()
    async with new_node(members) as server, new_node() as node:
        members.ids.add(node.node_id)
        address = await server.listen(LISTEN)
        for _ in range(6):
            await node.connect(address)
        await eventually(lambda: len(server.peers) == 6)
        members.ids.clear()

        async def count() -> None:
            while not turns or turns[-1] < 12:
                turns.append(members.checks)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await server.review()
        assert set(turns) & {8, 10}
        assert set(turns) <= {6, 8, 10, 12}
        assert server.peers == []


# Stopping.


async def test_review_completes_although_the_caller_is_cancelled() -> None:
    hook = LaterAlone()
    async with server_with_peers(hook.decide) as there:
        hook.second = True
        with anyio.move_on_after(0.02) as scope:
            await there.server.review()
        assert scope.cancelled_caught
        hook.enough.set()
        assert (await there.eve.closed()).code == CloseCode.AUTHENTICATION_FAILED
        await there.alice_stays()


async def test_a_node_that_ends_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # a peer whose line remains stays connected

    async def end_meanwhile() -> None:
        hook = LaterAlone()
        async with (
            anyio.create_task_group() as tasks,
            new_node(hook.decide) as server,
            new_node() as node,
        ):
            await node.connect(await server.listen(LISTEN))
            await eventually(lambda: bool(server.peers))
            hook.second = True
            outcome = await started(tasks, server.review)
            assert outcome == []
        (error,) = outcome
        assert isinstance(error, ParleyError)
        assert "has stopped" in str(error)

    with nothing_left():
        await end_meanwhile()


async def test_many_reviews_at_any_moment_leave_nothing(
    known: KnownPeers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def review() -> None:
        async with new_node(FirstUse(known)) as server, Node(Identity.create()) as node:
            address = await server.listen(LISTEN)
            for turns in range(12):
                peer = await node.connect(address)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(server.review)
                    for _ in range(turns):
                        await anyio.lowlevel.cancel_shielded_checkpoint()
                    if turns % 3 == 0:
                        tasks.cancel_scope.cancel()
                    elif turns % 3 == 1:
                        known.forget(node.node_id)
                await peer.close()

    with nothing_left():
        await review()
