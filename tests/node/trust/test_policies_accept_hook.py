"""Accept hooks: a peer is accepted only if the hook returns True, whatever else happens."""

import asyncio
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley import Node
from parley._node.errors import ConfigError, HandshakeError, NotTrustedError, PeerClosedError
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.address import Address
from parley._node.transport.memory import memory_pair
from parley._node.trust.policies import AcceptHook, AnyPeer
from parley.trust import Candidate
from tests.inspection import connections_of
from tests.node.network import (
    eventually,
    new_node,
    nothing_left,
    other_tasks,
    settled,
)

pytestmark = pytest.mark.anyio

LISTEN = "tcp://127.0.0.1:0"


async def yes(candidate: Candidate) -> bool:
    await anyio.sleep(0.001)
    return True


async def meet(alice: Node, bob: Node) -> Peer:
    return await alice.connect(await bob.listen(LISTEN))


async def test_hook_that_returns_true() -> None:
    asked: list[Candidate] = []

    async def hook(candidate: Candidate) -> bool:
        asked.append(candidate)
        return await yes(candidate)

    with nothing_left():
        async with new_node(role="client", info={"name": "a"}) as alice, new_node(hook) as bob:
            peer = await meet(alice, bob)
            assert await peer.ping() < 5
            assert [back.node_id for back in bob.peers] == [alice.node_id]
            assert asked == [Candidate(alice.node_id, "client", {"name": "a"}, "127.0.0.1", False)]
            assert len({asked[0], asked[0]}) == 1
            del peer
        del alice, bob


async def test_hook_decides_on_dialled_peers() -> None:
    asked: list[Candidate] = []

    async def hook(candidate: Candidate) -> bool:
        asked.append(candidate)
        return len(asked) == 1

    async with new_node() as alice, new_node(role="server") as bob:
        place = str(Address.parse(await bob.listen(LISTEN)).without_node_id())
        assert (await alice.connect(place, trust=hook)).node_id == bob.node_id
        assert asked == [Candidate(bob.node_id, "server", {}, place, True)]
        with pytest.raises(NotTrustedError, match="the accept hook refused") as caught:
            await alice.connect(place, trust=hook)
        assert caught.value.code == CloseCode.PEER_NOT_TRUSTED
        # The hook isn't called for a node ID pinned by the address.
        assert (await alice.connect(bob.addresses[0], trust=hook)).is_open
        assert len(asked) == 2


async def test_a_hook_over_a_byte_stream() -> None:
    asked: list[Candidate] = []

    async def hook(candidate: Candidate) -> bool:
        asked.append(candidate)
        return True

    async with new_node() as alice, new_node(hook) as bob:
        ours, theirs = memory_pair()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bob.accept_stream, theirs)
            await alice.connect_stream(ours, trust=hook)
    assert {(c.node_id, c.address, c.dialled) for c in asked} == {
        (alice.node_id, "stream", False),
        (bob.node_id, "stream", True),
    }


def answering(answer: object) -> AcceptHook:
    async def hook(candidate: Candidate) -> bool:
        return answer  # type: ignore[return-value]  # that is the test

    return hook


@pytest.mark.parametrize("answer", [False, None, 1, "yes", NotImplemented])
async def test_anything_but_true_refuses(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    async with new_node() as alice, new_node(answering(answer)) as bob:
        peer = await meet(alice, bob)
        ended = await peer.closed()
        # The peer learns only that it was refused.
        assert (ended.code, ended.remote) == (CloseCode.AUTHENTICATION_FAILED, True)
        assert "hook" not in ended.text
        with pytest.raises(PeerClosedError):
            await peer.call("x")
        assert bob.peers == []
    assert f"the accept hook refused {alice.node_id}" in caplog.text


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (lambda candidate: True, "expected a trust policy or an async function"),
        (AnyPeer, "invalid trust: AnyPeer is a class; use an instance"),
        ("x", "invalid trust 'x'"),
    ],
)
def test_trust_must_be_a_policy_or_an_async_function(hook: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        new_node(hook)


async def never(candidate: Candidate) -> bool:
    await anyio.sleep_forever()
    return True


async def stubborn(candidate: Candidate) -> bool:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.03)
    return True


async def raising_late(candidate: Candidate) -> bool:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
    return True


@pytest.mark.parametrize("hook", [never, stubborn, raising_late])
async def test_no_answer_in_time_refuses(
    hook: AcceptHook, caplog: pytest.LogCaptureFixture
) -> None:
    async with new_node() as alice, new_node(hook, accept_timeout=0.01) as bob:
        peer = await meet(alice, bob)
        with anyio.fail_after(2):
            assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED
        await settled()
        assert bob.peers == []
        place = str(Address.parse(bob.addresses[0]).without_node_id())
        async with new_node(accept_timeout=0.01) as carol:
            with pytest.raises(NotTrustedError, match=r"did not decide on \w+ in 0.01 s"):
                await carol.connect(place, trust=hook)
    assert f"did not decide on {alice.node_id}" in caplog.text


async def test_handshake_deadline_applies_while_a_hook_runs() -> None:
    stopped: list[bool] = []

    async def hook(candidate: Candidate) -> bool:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)
        return True

    tasks = other_tasks()
    async with new_node() as alice, new_node(hook, handshake_timeout=0.3) as bob:
        peer = await meet(alice, bob)
        await peer.closed()
        await eventually(lambda: stopped == [True])
        assert other_tasks() <= tasks


@pytest.mark.parametrize("how", ["cut", "closed", "cancelled"])
async def test_a_connection_that_dies_meanwhile_leaves_nothing(how: str) -> None:
    stopped: list[bool] = []
    asked: list[bool] = []

    async def hook(candidate: Candidate) -> bool:
        asked.append(True)
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)
        return True

    before = other_tasks()
    async with new_node() as alice, new_node() as bob:
        place = str(Address.parse(await bob.listen(LISTEN)).without_node_id())
        async with anyio.create_task_group() as tasks:

            async def dial() -> None:
                with pytest.raises(HandshakeError):
                    await alice.connect(place, trust=hook)

            tasks.start_soon(dial)
            await eventually(lambda: asked == [True])
            if how == "cancelled":
                tasks.cancel_scope.cancel()
            elif how == "cut":
                for peer in list(connections_of(alice)):
                    peer.driver.ended()
            else:
                for peer in list(connections_of(alice)):
                    peer.live.drop(CloseCode.GOING_AWAY)
        await eventually(lambda: stopped == [True])
        await settled()
        assert other_tasks() <= before


@pytest.mark.parametrize("failing", [False, True])
async def test_a_node_that_closes_meanwhile_waits_for_no_hook(failing: bool) -> None:
    asked = anyio.Event()

    async def hook(candidate: Candidate) -> bool:
        asked.set()
        return await never(candidate)

    before = other_tasks()
    bob = new_node(hook, accept_timeout=60)
    async with new_node() as alice:
        with anyio.fail_after(5), suppress(ZeroDivisionError):
            async with bob:
                peer = await meet(alice, bob)
                await asked.wait()
                if failing:
                    raise ZeroDivisionError
        assert bob.peers == []
        with anyio.fail_after(5):
            await peer.closed()
    assert other_tasks() <= before


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_hook_that_raises_a_cancellation_refuses(anyio_backend: str) -> None:
    """A hook may raise the cancellation of another task of the application."""

    async def hook(candidate: Candidate) -> bool:
        raise asyncio.CancelledError

    async with new_node() as alice, new_node(hook) as bob:
        peer = await meet(alice, bob)
        with anyio.fail_after(2):
            assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED


async def test_slow_hooks_do_not_delay_other_peers() -> None:
    async def hook(candidate: Candidate) -> bool:
        if candidate.role == "client":
            await anyio.sleep_forever()
        return True

    async with (
        new_node(role="client") as slow,
        new_node() as quick,
        new_node(hook, half_open=5) as bob,
    ):
        address = await bob.listen(LISTEN)
        for _ in range(10):
            await slow.connect(address)
        with anyio.fail_after(2):
            assert await (await quick.connect(address)).ping() < 2


def test_a_hook_does_not_allow_plaintext() -> None:
    with pytest.raises(ConfigError, match="cannot use trust 'hook' with plaintext"):
        new_node(yes, plaintext="both")


async def test_hook_does_not_allow_plaintext_when_dialling() -> None:
    async with new_node(plaintext="only") as alice:
        with pytest.raises(ConfigError, match="cannot use trust 'hook' with plaintext"):
            await alice.connect("tcp://127.0.0.1:1", trust=yes)
