"""Row 10. Mistake: reflection, and dialling oneself.

Promise: a side's own messages, sent back to it at any time, end the connection, and a node that
reaches itself refuses. Reflected events of the handshake: test_row_06_middle_node.py. Proofs with
the node's own ID: tests/handshake.
"""

import anyio
import pytest

from parley import Call, HandshakeError, Node
from parley._crypto.identity import Identity
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.event import Event
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import StreamOpened
from parley._node.testing import FaultyProxy
from parley._node.trust.policies import AnyPeer
from tests.node.network import PATIENCE, config, eventually
from tests.node.protocol.pair import Pair, Side, events_of
from tests.security.changed_bytes import doing
from tests.security.shapes import SHAPES, Shape

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)


def talk(pair: Pair, side: Side) -> bytes:
    """Return the frames of everything that one side can do alone."""
    core, now = side.core, pair.now
    core.send(1, 0, 64, 1, b"unsealed", lbm=False)
    core.send(1, 7, 64, 1, b"a request, sealed", lbm=False, seal=True)
    stream = core.open_stream("app/any")
    core.send_data(stream, bytes(100))
    core.ping(now)
    sent = side.take(now)
    core.update_keys(now)
    core.send(1, 0, 64, 1, b"under new keys", lbm=False)
    sent += side.take(now)
    core.rekey(now)
    return sent + side.take(now)


@every_shape
@pytest.mark.parametrize("who", [0, 1], ids=["initiator", "responder"])
def test_own_events_sent_back(shape: Shape, who: int) -> None:
    """Each event is sent back alone, right after the handshake and after further traffic."""

    def new() -> tuple[Pair, Side]:
        pair = Pair(shape.config("initiator"), shape.config("responder"))
        pair.pump()
        return pair, pair.sides[who]

    pair, side = new()
    count = len(events_of(talk(pair, side)))
    assert count >= 7
    for number in range(count):
        for spoken in (False, True):
            pair, side = new()
            if spoken:
                pair.deliver(side, talk(pair, pair.other(side)))
                side.reports.clear()
            own = events_of(talk(pair, side))[number]
            with doing(f"event {number}, spoken: {spoken}"):
                pair.deliver(side, frame(own))
                assert side.code == CloseCode.BAD_RECORD
                assert not side.all(Event) + side.all(StreamOpened)
        if shape.step > 1:
            break  # the slow suites don't differ here


@pytest.mark.anyio
@pytest.mark.parametrize("way", ["proxy", "twin"])
async def test_a_node_that_dials_itself(anyio_backend: str, way: str) -> None:
    own = Identity.create()
    called: list[object] = []
    with anyio.fail_after(PATIENCE):
        async with (
            Node(own, config=config(handshake_timeout=1.0)) as node,
            Node(own, config=config(handshake_timeout=1.0)) as twin,
        ):

            @node.on_call("t")
            async def note(call: Call) -> None:
                called.append(call.data)

            address = await node.listen("tcp://127.0.0.1:0")
            async with FaultyProxy(await node.listen("tcp://127.0.0.1:0")) as proxy:
                dialler = twin if way == "twin" else node
                through = proxy.address if way == "proxy" else address
                with pytest.raises(HandshakeError) as caught:
                    await dialler.connect(through, trust=AnyPeer())
                assert caught.value.code == CloseCode.AUTHENTICATION_FAILED
                await eventually(lambda: not node.peers and not twin.peers)
    assert called == []
