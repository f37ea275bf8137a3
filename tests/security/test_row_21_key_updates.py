"""Row 21, key updates written but not exercised: each limit is crossed under load on both
sides; epochs change, nothing that is kept opens one that is over, and nothing is lost.

Elsewhere: each limit for itself in the core (tests/node/protocol/test_channel.py, from
`test_an_update_after_so_many_events` on), rekeys that cross in every order
(tests/node/protocol/test_rekey.py), and all of it against another implementation
(tests/interop/test_rekeys.py).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import pytest

from parley import Call, Node, NodeConfig, Peer, Stream
from parley._crypto.identity import Identity
from parley._crypto.randomness import random_bytes
from parley._node.handlers.topic import Topic
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.limits import Limits
from parley._node.testing import FakeClock, connect_nodes
from parley._node.tuning import Tuning
from tests.node.network import PATIENCE
from tests.node.protocol.pair import open_pair
from tests.security.key_search import Witnesses, kept_keys

pytestmark = [pytest.mark.anyio, pytest.mark.alone]

ROUNDS: Final = 12
CALLS: Final = 20
NOTES: Final = 20
PIECE: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OfCore(NodeConfig):
    """Settings of a node whose cores have some limits of their own."""

    limits_of_core: Mapping[str, float] = field(default_factory=dict)

    def core(self, identity: Identity) -> CoreConfig:
        limits: dict[str, Any] = dict(self.limits_of_core)
        # By name: `super()` does not know a dataclass that was made anew for its slots.
        return replace(NodeConfig.core(self, identity), **limits)


@dataclass
class Both:
    """Two nodes that have met; `witnesses` are the observers of client and server."""

    clock: FakeClock
    peers: tuple[Peer, Peer]
    topics: tuple[Topic, Topic]
    witnesses: tuple[Witnesses, Witnesses]
    read: list[bytearray]


@asynccontextmanager
async def both(limits: dict[str, Any], seal_events: int = 64) -> AsyncIterator[Both]:
    """Two nodes, each of which answers calls, reads streams and publishes."""
    clock = FakeClock()
    config = OfCore(
        algorithms={"kex": ("x25519",)},
        limits=Limits(seal_events=seal_events),
        tuning=Tuning(rekey_allowance=1_000),
        limits_of_core=limits,
    )
    witnesses = Witnesses(), Witnesses()
    nodes = [
        Node(Identity.create(), config=config, observer=lambda w=w: w, clock=clock)  # type: ignore[misc]  # mypy infers no default
        for w in witnesses
    ]
    read = [bytearray(), bytearray()]
    for node, came in zip(nodes, read, strict=True):
        serve(node, came)
    with anyio.fail_after(PATIENCE):
        async with nodes[0], nodes[1]:
            peers = await connect_nodes(nodes[0], nodes[1])
            topics = nodes[0].topic("news"), nodes[1].topic("news")
            yield Both(clock, peers, topics, witnesses, read)


def serve(node: Node, came: bytearray) -> None:
    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    @node.on_stream("bulk")
    async def bulk(stream: Stream) -> None:
        async for data in stream:
            came.extend(data)


async def load(pair: Both, between: Callable[[int], None] = lambda round: None) -> None:
    """Calls, streams and notes of both sides at once; all of it arrives, in its order."""
    sent = [random_bytes(PIECE * ROUNDS), random_bytes(PIECE * ROUNDS)]
    notes: tuple[list[object], list[object]] = ([], [])

    async def subscribe(side: int, ready: anyio.Event) -> None:
        async with pair.peers[side].subscribe("news", timeout=None) as subscription:
            ready.set()
            while len(notes[side]) < ROUNDS * NOTES:
                notes[side].append(await anext(subscription))

    async def call(side: int, data: int) -> None:
        assert await pair.peers[side].call("echo", data, timeout=None) == data

    async def publish(topic: Topic, first: int) -> None:
        for number in range(first, first + NOTES):
            await topic.publish(number)

    async with anyio.create_task_group() as tasks:
        for side in (0, 1):
            ready = anyio.Event()
            tasks.start_soon(subscribe, side, ready)
            await ready.wait()
        streams = [peer.open_stream("bulk") for peer in pair.peers]
        for turn in range(ROUNDS):
            between(turn)
            async with anyio.create_task_group() as calls:
                for number in range(CALLS):
                    for side in (0, 1):
                        calls.start_soon(call, side, number)
                for side, stream in enumerate(streams):
                    calls.start_soon(stream.send, sent[side][turn * PIECE : (turn + 1) * PIECE])
                for topic in pair.topics:
                    calls.start_soon(publish, topic, turn * NOTES)
            await pair.clock.tick(1.0)
        for stream in streams:
            await stream.aclose()
    await pair.clock.tick()
    assert [bytes(came) for came in pair.read] == sent[::-1]
    for came in notes:
        assert came == list(range(ROUNDS * NOTES))


LIMITS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    # What is set, and how many epochs of each direction that makes at least.
    "events": ({"update_after_events": 8}, 8),  # a Batch is one
    "bytes": ({"update_after_bytes": 8_000}, 6),
    "time": ({"update_after_seconds": 2.0}, 4),
    "rekey": ({"rekey_interval": 2.0}, 4),
    "all at once": (
        {
            "update_after_events": 40,
            "update_after_bytes": 8_000,
            "update_after_seconds": 3.0,
            "rekey_interval": 2.0,
        },
        12,
    ),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_each_limit_is_crossed_under_load(anyio_backend: str, name: str) -> None:
    limits, least = LIMITS[name]
    async with both(limits) as pair:
        await load(pair)
        for witness in pair.witnesses:
            assert min(witness.epochs) >= least, witness.epochs
            assert len({w.epoch for w in witness.past if w.sent}) == witness.epochs[True] + 1
        # Both sides are in the same epochs.
        ours, theirs = (witness.epochs for witness in pair.witnesses)
        assert ours == theirs[::-1]
        if "rekey_interval" in limits:
            assert len(pair.witnesses[0].rekeys) >= 3
        assert kept_keys(pair.witnesses) == []
        assert all(peer.is_open for peer in pair.peers)


@pytest.mark.parametrize("seal_events", [1, 2, 7, 64])
async def test_events_are_sealed_under_load(anyio_backend: str, seal_events: int) -> None:
    """No more go unsealed than was agreed, whatever else is under way, and all are by then."""
    async with both({"update_after_events": 100}, seal_events) as pair:
        await load(pair)
        await pair.clock.tick(1.0)
        for witness in pair.witnesses:
            assert max(witness.longest_unsealed) < seal_events
            assert witness.unsealed == [0, 0]
        assert kept_keys(pair.witnesses) == []


async def test_rekeys_cross_each_other_and_plain_updates_under_load(anyio_backend: str) -> None:
    """Both sides offer at the same moment, and update between an offer and its answer."""

    def disturb(turn: int) -> None:
        for peer in pair.peers:
            now = peer.backend.now()
            if turn % 3 == 0:
                peer.core.update_keys(now)
            peer.core.rekey(now)
            if turn % 2 == 0:
                peer.core.update_keys(now)

    async with both({}) as pair:
        await load(pair, disturb)
        for witness in pair.witnesses:
            # A rekey a turn, or two where an offer came after the other was over.
            assert ROUNDS <= len(witness.rekeys) <= 2 * ROUNDS
            assert min(witness.epochs) >= len(witness.rekeys) + ROUNDS // 2
        assert pair.witnesses[0].rekeys == pair.witnesses[1].rekeys
        assert kept_keys(pair.witnesses) == []
        assert all(peer.is_open for peer in pair.peers)


# What is kept, looked at between two events.


def test_the_search_finds_what_was_kept() -> None:
    """Without this, finding nothing would mean nothing."""
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    kept: list[object] = [pair.a.channel._sender.secret]  # where the search can see it
    pair.a.core.send(1, 0, 64, 1, b"x")
    pair.pump()
    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert set(kept_keys(witnesses[:1])) == {
        f"a secret of epoch 0 (sent, stream {stream})" for stream in (0, 1)
    }
    kept.clear()
    assert kept_keys(witnesses) == []
    kept.append(pair.a.channel._sender._lanes)
    pair.a.core.send(1, 0, 64, 1, b"x")
    pair.pump()
    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert "a key of epoch 1 (sent, stream 1)" in kept_keys(witnesses[:1])
    kept.clear()
    assert kept_keys(witnesses) == []


def test_an_update_leaves_nothing_even_if_the_other_side_keeps_its_own_back() -> None:
    """A peer that answers an offer of ours and then says no more: our direction has the
    rekey's key, goes on to others, and must not keep what the rekey gave it."""
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    pair.a.core.rekey(pair.now)
    pair.carry(pair.a)
    answer = pair.b.take(pair.now)  # RekeyAnswer, and b's KeyUpdate
    first = 4 + int.from_bytes(answer[:4])
    pair.deliver(pair.a, answer[:first])
    for _ in range(2):
        pair.carry(pair.a)
        pair.a.core.update_keys(pair.now)
    pair.carry(pair.a)
    assert witnesses[0].epochs == [0, 3]
    assert [kept for kept in kept_keys(witnesses[:1]) if "(sent" in kept] == []
    pair.deliver(pair.a, answer[first:])
    pair.pump()
    assert witnesses[0].epochs == [1, 3]
    assert kept_keys(witnesses) == []


def test_nothing_of_a_handshake_is_kept() -> None:
    """Neither `hs` nor the shared secret nor the keys of the Proofs, from the first moment."""
    witnesses = Witnesses(), Witnesses()
    pair = open_pair(observers=witnesses)
    assert [w.epoch for w in witnesses[0].past] == [-1, -1]
    assert kept_keys(witnesses) == []
    assert pair.a.state == "OPEN"
