"""Row 6 over real sockets. Mistake: a negotiation that the signatures do not cover. Promise:
who dials through somebody in the middle that touches the handshake gets a typed error, no
handler runs, and neither node keeps the connection past its deadlines.

A selection for each event; test_row_06_middle_node.py does every byte without sockets.
"""

from collections.abc import Iterator

import anyio
import pytest

from parley import Call, Node, NodeConfig, ParleyError
from parley._node.errors import HandshakeError, PeerClosedError
from parley._node.trust.policies import AnyPeer, Pinned, TrustPolicy
from tests.node.network import PATIENCE, eventually
from tests.security import tampering
from tests.security.changed_bytes import Change, at, doing
from tests.security.middle import Tamper, honest
from tests.security.middle_sockets import listening_middle
from tests.security.shapes import INITIATORS_PROOF, ONE_OF_EACH, SHAPES, Shape, identity

pytestmark = pytest.mark.anyio

# Seconds: several meetings wait for them at the same time.
DEADLINE = 0.8
shapes = pytest.mark.parametrize(
    ("shape", "name"),
    [
        pytest.param(shape, name, id=f"{shape.name}-{name}".replace(" ", "_"))
        for shape in (SHAPES["chain"], SHAPES["retry in a network"])
        for name in shape.events
    ],
)


def node(shape: Shape, who: str, deadline: float = DEADLINE) -> Node:
    """A real node with the algorithms and the network key of a shape, and short deadlines:
    all of them together are far less than PATIENCE, also on a busy machine."""
    names = {**ONE_OF_EACH, **shape.algorithms, **(shape.responders if who == "responder" else {})}
    return Node(
        identity(who),
        config=NodeConfig(
            algorithms=names,
            handshake_timeout=deadline,
            idle_before_ping=deadline / 2,
            ping_timeout=deadline / 2,
            drain_timeout=0.0,
            **shape.settings,
        ),
    )


def selected(shape: Shape, name: str) -> Iterator[tuple[str, Tamper]]:
    """Some of each kind of fault."""
    size = shape.sizes()[name]
    for place in (0, 3, 4, 11, size // 2, size - 1):
        yield f"byte {place} changed", at(name, _changed(place))
    yield "cut short", at(name, lambda data: (len(data) - 5).to_bytes(4, "big") + data[4:-1])
    yield from tampering.lost(name)
    yield next(tampering.reflected(name))  # in place of its receiver
    yield from tampering.reordered(shape, name)
    old = {what: data for what, data in tampering.foreign(shape).items() if what == f"old {name}"}
    for what, tamper in tampering.inserted(shape, name, old):
        if "behind" not in what:
            yield what, tamper


def _changed(place: int) -> Change:
    return lambda data: data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]


async def refused(shape: Shape, name: str, tamper: Tamper, trust: TrustPolicy) -> None:
    """Two nodes meet; both give it up in time, and no handler runs."""
    called: list[object] = []
    with anyio.fail_after(2 * PATIENCE):
        async with node(shape, "responder") as server, node(shape, "initiator") as client:

            @server.on_call("t")
            async def handler(call: Call) -> None:
                called.append(call.data)

            target = await server.listen("tcp://127.0.0.1:0")
            async with listening_middle(target, shape, tamper) as address:
                try:
                    peer = await client.connect(address, trust=trust)
                except HandshakeError:
                    assert not client.peers
                else:
                    # Its own part is done with its Proof; nobody ever answers a call.
                    assert name == INITIATORS_PROOF
                    assert peer.node_id == server.node_id
                    with pytest.raises(PeerClosedError):
                        await peer.call("t", timeout=PATIENCE)
                await eventually(lambda: not server.peers and not client.peers)
    assert called == []


@shapes
async def test_a_touched_handshake_opens_nothing(
    anyio_backend: str, shape: Shape, name: str
) -> None:
    async def one(what: str, tamper: Tamper, trust: TrustPolicy) -> None:
        with doing(what):
            await refused(shape, name, tamper, trust)

    async with anyio.create_task_group() as meetings:
        for number, (what, tamper) in enumerate(selected(shape, name)):
            trust = Pinned(identity("responder").node_id) if number % 2 else AnyPeer()
            meetings.start_soon(one, what, tamper, trust)


@pytest.mark.parametrize("shape", [SHAPES["chain"], SHAPES["retry in a network"]])
async def test_an_honest_middle_is_no_hindrance(anyio_backend: str, shape: Shape) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            node(shape, "responder", PATIENCE) as server,
            node(shape, "initiator", PATIENCE) as client,
        ):
            server.on_call("t")(lambda call: call.data)
            target = await server.listen("tcp://127.0.0.1:0")
            async with listening_middle(target, shape, honest) as address:
                peer = await client.connect(address, trust=Pinned(server.node_id))
                assert await peer.call("t", "hello", timeout=PATIENCE) == "hello"
                await peer.close()


def test_errors_of_a_handshake_are_ours() -> None:
    assert issubclass(HandshakeError, ParleyError)
    assert issubclass(PeerClosedError, ParleyError)
