"""What the two sides negotiate: Retry, network keys, plaintext, minimums, roles, limits, padding.

Section 5 and 7 of docs/protocol.md, each from both sides.
"""

from collections.abc import Callable
from typing import Literal

import pytest

from parley import NodeConfig, Peer
from parley._lbm.padding import parse_padding
from parley._node.errors import HandshakeError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import Limits
from tests.interop.meeting import (
    SIDES,
    our_config,
    our_identity,
    our_node,
    silence,
    their_config,
)
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.handshake import LIMITS, handshake_cells
from tests.reference.padding import rule_size
from tests.reference.peer import ReferencePeer, Side
from tests.reference.recorded import seed
from tests.reference.wire import CELLS, TYPES, Violation

pytestmark = pytest.mark.anyio

BOTH_KEX = ("x25519-mlkem768", "x25519")
KEY = seed("network key")
PLAIN = their_config(encrypted=False, plaintext=True)


def echo(peer: ReferencePeer) -> ReferencePeer:
    """Handshake, one call, Close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", "hi")[CELLS["data"]] == "hi"
    acts.close(peer)
    return peer


def lost(peer: ReferencePeer) -> list[bytes]:
    """Run a handshake that the local side ends silently, and return its earlier messages."""
    with pytest.raises(ConnectionLost):
        peer.handshake()
    return peer.channel.received


def rejected(code: str) -> Callable[[ReferencePeer], str]:
    """A handshake that our side rejects; the text of the Reject."""

    def act(peer: ReferencePeer) -> str:
        with pytest.raises(Violation, match="rejected") as violation:
            peer.handshake()
        assert violation.value.code == code
        reject = peer.channel.received[-1]
        assert reject[6:8] == bytes(TYPES["Reject"])
        assert silence(peer)
        return str(handshake_cells(reject)[1][CELLS["text"]])

    return act


# Retry.


async def test_our_node_asks_for_another_share() -> None:
    async with our_node(our_config(algorithms={"kex": ("x25519",)})) as ours:
        peer = await ours.meet(echo, config=their_config(kex=BOTH_KEX))
        assert [event[6:8] for event in peer.channel.sent[:2]] == [b"\1\1", b"\1\1"]
        assert peer.channel.received[0][6:8] == bytes(TYPES["Retry"])


async def test_our_node_is_asked_for_another_share() -> None:
    async with our_node(our_config(algorithms={"kex": BOTH_KEX})) as ours:
        peer = await ours.meet(echo, "responder", config=their_config(kex=("x25519",)))
        assert [event[6:8] for event in peer.channel.received[:2]] == [b"\1\1", b"\1\1"]
        assert peer.session.agreement.suite is not None
        assert peer.session.agreement.suite.kex == "x25519"


@pytest.mark.parametrize("shares", [(), BOTH_KEX, ("x25519",), ("x25519-mlkem768",)])
async def test_shares_that_a_hello_may_have(shares: tuple[str, ...]) -> None:
    async with our_node(our_config(algorithms={"kex": BOTH_KEX})) as ours:
        peer = await ours.meet(echo, config=their_config(kex=BOTH_KEX, shares=shares))
        suite = peer.session.agreement.suite
        assert suite is not None
        # A kex with a share goes before a better one that costs another round trip.
        assert suite.kex == ("x25519" if shares == ("x25519",) else "x25519-mlkem768")
        hellos = [event for event in peer.channel.sent if event[:8] == b"\0\0\0\0\0\0\1\1"]
        assert len(hellos) == (1 if shares else 2)


async def test_a_retry_under_a_network_key() -> None:
    async with our_node(our_config(network_key=KEY)) as ours:
        await ours.meet(echo, config=their_config(kex=BOTH_KEX, network_key=KEY))
    async with our_node(our_config(algorithms={"kex": BOTH_KEX}, network_key=KEY)) as ours:
        await ours.meet(echo, "responder", config=their_config(network_key=KEY))


# Network keys.


@pytest.mark.parametrize("side", SIDES)
async def test_the_same_network_key(side: Side) -> None:
    async with our_node(our_config(network_key=KEY)) as ours:
        await ours.meet(echo, side, config=their_config(network_key=KEY))
        assert await ours.ended() == "normal"


async def test_our_node_without_network_key_ignores_cell_12() -> None:
    """It replies, but the other side's keys depend on the network key, so the handshake stops."""

    def act(peer: ReferencePeer) -> list[bytes]:
        with pytest.raises(Violation, match="bad-record"):
            peer.handshake()
        return peer.channel.received

    async with our_node() as ours:
        reply, _ = await ours.meet(act, config=their_config(network_key=KEY))
        assert reply[6:8] == bytes(TYPES["Reply"])


@pytest.mark.parametrize("key", [None, seed("another network key")])
async def test_our_node_learns_nothing_without_the_network_key(key: bytes | None) -> None:
    def act(peer: ReferencePeer) -> None:
        with pytest.raises(Violation, match="mac"):
            peer.handshake()

    async with our_node(our_config(network_key=key)) as ours:
        await ours.meet(act, "responder", config=their_config(network_key=KEY))
        assert isinstance(ours.refusal, HandshakeError)
        assert ours.refusal.code == CloseCode.CONNECTION_LOST


async def test_a_responder_with_another_key_does_not_pass_as_one_of_the_network() -> None:
    """One that does not look at cell 12 still cannot make a Proof: the key is in the schedule."""
    async with our_node(our_config(network_key=KEY)) as ours:
        sent = await ours.meet(lost, "responder", config=their_config())
        assert len(sent) == 1
        assert isinstance(ours.refusal, HandshakeError)
        assert ours.refusal.code == CloseCode.BAD_RECORD


# Plaintext.


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("plaintext", ["only", "both"])
async def test_plaintext(side: Side, plaintext: Literal["only", "both"]) -> None:
    async def application(peer: Peer) -> None:
        assert not peer.encrypted
        assert peer.node_id is None
        assert (await peer.closed()).code == CloseCode.NORMAL

    if side == "responder" and plaintext == "both":
        plaintext = "only"  # The dialling side selects it.
    async with our_node(NodeConfig(plaintext=plaintext)) as ours:
        peer = await ours.meet(echo, side, config=PLAIN, application=application)
        assert peer.session.agreement.suite is None
        assert any("UNENCRYPTED" in line for line in ours.log)


async def test_a_listener_for_both_takes_either() -> None:
    async with our_node(our_config(plaintext="both")) as ours:
        assert (await ours.meet(echo, config=PLAIN)).session.agreement.suite is None
        assert (await ours.meet(echo)).session.agreement.suite is not None


# Minimums, and no common algorithm.


async def test_no_key_for_a_common_signing_algorithm() -> None:
    async with our_node(identity=our_identity("ecdsa-p256")) as ours:
        text = await ours.meet(rejected("no-common-algorithm"))
        assert text == "no common algorithm: signing"


async def test_a_further_key_serves_where_the_primary_does_not() -> None:
    async with our_node(identity=our_identity("ml-dsa-65", "ed25519")) as ours:
        peer = await ours.meet(echo)
        assert peer.session.remote is not None
        assert peer.session.remote.id == ours.node.node_id
        assert set(peer.session.remote.keys) == {"ml-dsa-65", "ed25519"}


# Roles, information, limits.


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("role", ["client", "server", "peer"])
async def test_roles_are_claimed_both_ways(side: Side, role: str) -> None:
    seen: list[tuple[str, object]] = []

    async def application(peer: Peer) -> None:
        seen.append((peer.role, peer.info))
        await peer.closed()

    config = our_config(role=role, info={"name": "Ada"})
    theirs = their_config(role="server", node={"name": "ref"})
    async with our_node(config) as ours:
        peer = await ours.meet(echo, side, config=theirs, application=application)
        assert peer.session.agreement.remote_role == role
        if side == "responder":
            assert seen == [("server", {"name": "ref"})]


SMALL = Limits(max_payload=2048, seal_events=3, seal_delay_ms=0, stream_window=4096, max_streams=2)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("ours_state", "theirs_state", "agreed"),
    [
        (SMALL, {}, {n: getattr(SMALL, n) for n in LIMITS}),
        (Limits(), dict.fromkeys(LIMITS, 2**53), {n: d for n, (d, _, _) in LIMITS.items()}),
        (
            Limits(max_payload=4096, seal_events=64),
            {"max_payload": 8192, "seal_events": 2, "max_streams": 0},
            {"max_payload": 4096, "seal_events": 2, "max_streams": 0},
        ),
        (
            Limits(),
            {name: smallest for name, (_, smallest, _) in LIMITS.items()},
            {name: smallest for name, (_, smallest, _) in LIMITS.items()},
        ),
    ],
)
async def test_of_each_limit_the_smaller_holds(
    side: Side, ours_state: Limits, theirs_state: dict[str, int], agreed: dict[str, int]
) -> None:
    limits: list[Limits] = []

    async def application(peer: Peer) -> None:
        limits.append(peer.limits)
        await peer.closed()

    theirs = their_config(limits=theirs_state)
    async with our_node(our_config(limits=ours_state)) as ours:
        peer = await ours.meet(echo, side, config=theirs, application=application)
        settled = peer.session.agreement.limits
        assert {name: settled[name] for name in agreed} == agreed
        for one in limits:
            assert {name: getattr(one, name) for name in LIMITS} == settled


# Trust.


# Padding and sealing, seen from outside.


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rule", ["padme", "bucket:64", "bucket:256"])
async def test_our_padding(side: Side, rule: str) -> None:
    async with our_node(our_config(padding=parse_padding(rule))) as ours:

        def act(peer: ReferencePeer) -> list[int]:
            peer.handshake()
            for number, size in enumerate((0, 5, 100, 1000, 4000), start=1):
                data = bytes(size)
                assert acts.call(peer, "parley.echo", data, async_id=number)[CELLS["data"]] == data
            sizes = [len(o.event.payload) for o in peer.events if o.event.type == TYPES["Result"]]
            acts.close(peer)
            return sizes

        sizes = await ours.meet(act, side)
        assert len(sizes) == 5
        assert all(rule_size(rule, size) == size >= 32 for size in sizes)


async def test_our_node_drops_noise() -> None:
    def act(peer: ReferencePeer) -> object:
        peer.handshake()
        peer.send("Call", 1, 1, noise=bytes(300), topic="parley.echo", data={0: b"kept"})
        answer = acts.result(peer, 1)
        acts.close(peer)
        return answer[CELLS["data"]]

    async with our_node() as ours:
        assert await ours.meet(act) == {0: b"kept"}


@pytest.mark.parametrize("side", SIDES)
async def test_delivered_only_when_sealed(side: Side) -> None:
    async with our_node(our_config(deliver="sealed")) as ours:

        def act(peer: ReferencePeer) -> None:
            peer.handshake()
            peer.send("Call", 1, 1, topic="parley.echo", data="sealed late")
            for number in (1, 2):
                acts.ping(peer, number)
            assert ours.called == []
            peer.seal()
            assert acts.result(peer, 1)[CELLS["data"]] == "sealed late"
            acts.close(peer)

        # Not `automatic`: it then seals only on request.
        await ours.meet(act, side, automatic=False)
        assert ours.called == [("parley.echo", "sealed late")]
