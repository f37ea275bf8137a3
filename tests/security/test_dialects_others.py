"""What one client of a gateway can do to another: only claim a free UUID.

It can't answer for another client, send in its name, or end its connection. A bridge bypasses the
permissions of its topic, and a forward applies those of its own node.
"""

from typing import Final
from uuid import UUID

import anyio
import pytest

from parley import SubscribeRefused
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, BromineType, Flavour
from parley._node.dialects.named.core import NamedCore
from parley._node.dialects.relay.codec import SERVER
from parley._node.dialects.simproto.codec import RESPONSE, serialise_message
from parley._node.gateways.forward import Forward
from parley._node.gateways.named import NamedClient, NamedGateway
from parley._node.gateways.relay.bridge import Bridge
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.protocol.codes import CloseCode
from tests.node.dialects.named.events import on_wire, reply
from tests.node.dialects.relay.hall import A, B, C, Hall, faults, message
from tests.node.dialects.simproto.sides import Side
from tests.node.gateways.relays import raw, read, to_the_end
from tests.node.network import PATIENCE, eventually, new_node

PLACE: Final = "tcp://127.0.0.1:0"


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("kind", [BromineType.RESPONSE, BromineType.ERROR])
def test_nobody_replies_to_what_was_emitted_to_another(flavour: Flavour, kind: BromineType) -> None:
    """Both connections number their events in the same way, so that guessing is easy."""
    asked, other = (NamedCore(0.0, DialectLimits(), flavour) for _ in range(2))
    emit = OutgoingEmit(lambda: None)
    asked.ask(emit, "secret", b"?", 0.0)
    name = "error" if kind is BromineType.ERROR else "pong"
    answer = reply(emit.async_id, b"forged", name, kind)
    other.receive_data(on_wire(answer, flavour), 0.0)
    (event,) = other.reports()
    assert isinstance(event, BromineEvent), "an ordinary event, for its handlers"
    assert not emit.done
    assert not emit.replies
    asked.receive_data(on_wire(reply(emit.async_id, b"true"), flavour), 0.0)
    assert emit.take().raw == b"true"


def test_nobody_responds_to_what_was_asked_of_another() -> None:
    asked, other = Side(), Side()
    call = asked.sim.outgoing.call("echo", b"?", 0.0, None, lambda: None)
    other.receive(serialise_message(RESPONSE, call.async_id, b"\0forged"))
    assert other.code is CloseCode.PROTOCOL_ERROR
    assert not call.done
    asked.receive(serialise_message(RESPONSE, call.async_id, b"\0true"))
    assert call.data == b"true"


@pytest.mark.parametrize("sender", [B, C, SERVER, bytes(16)])
def test_nobody_speaks_as_another_on_a_relay(sender: bytes) -> None:
    hall = Hall(A, B, C)
    hall.send(A, message(B, A, b"true") + message(B, sender, b"forged"))
    assert hall.read(B) == [(B, A, b"true")]
    assert faults(hall.written(A)) == [4]
    assert hall.at[A].closing
    assert A not in hall.router.members
    hall.send(C, message(B, C, b"unharmed"))
    assert hall.read(B) == [(B, C, b"unharmed")]


def test_a_uuid_is_a_claim_whose_first_comer_has_it() -> None:
    hall = Hall(A, B)
    thief = hall.enter(A)
    assert thief.closing
    hall.send(B, message(A, B, b"for the first"))
    assert hall.read(A) == [(A, B, b"for the first")]
    hall.at[A].receive_eof(hall.now)
    # A relay doesn't authenticate: the next client with this UUID gets it.
    hall.at[A] = hall.enter(A)
    hall.send(B, message(A, B, b"for the next"))
    assert hall.read(A) == [(A, B, b"for the next")]


async def test_a_bridge_passes_by_the_rules_of_its_topic(anyio_backend: str) -> None:
    """A client of the relay can read and write the topic's notes, whatever `allow=` says."""
    with anyio.fail_after(PATIENCE):
        async with new_node() as node, Relay() as relay:
            topic = node.topic("members", allow=[])
            async with (
                Bridge(relay, topic, UUID(int=9)) as bridge,
                RelayClient(await relay.listen(PLACE)) as client,
            ):
                await relay.until(lambda: client.uuid in relay)
                await topic.publish(b"for members")
                assert await read(client) == [(bridge.uuid, b"for members", True)]
                await client.broadcast(b"from nobody")
                await eventually(lambda: bridge.published == 1)


@pytest.mark.parametrize("open_to_all", [True, False])
async def test_a_forward_hands_on_by_the_rules_of_its_own_node(
    anyio_backend: str, open_to_all: bool
) -> None:
    """The source authorises the forwarding node, and doesn't see that node's subscribers."""
    with anyio.fail_after(PATIENCE):
        async with new_node() as source, new_node() as middle, SimProtoGateway(middle) as gateway:
            source.topic("members", allow=middle.node_id)
            topic = middle.topic("members", allow=None if open_to_all else middle.node_id)
            place = await source.listen(PLACE)
            async with (
                Forward(middle, "members", place) as forward,
                SimProtoClient(await gateway.listen(PLACE)) as client,
            ):
                assert forward.topic is topic
                await eventually(lambda: forward.is_linked)
                if not open_to_all:
                    with pytest.raises(SubscribeRefused):
                        await client.subscribe("members").__aenter__()
                    return
                async with client.subscribe("members") as notes:
                    await source.topics["members"].publish(b"for members")
                    assert await anext(aiter(notes)) == b"for members"


async def test_who_breaks_the_rules_ends_itself_alone(anyio_backend: str) -> None:
    """A client sends values of maximum length, and garbage, while the gateway serves another
    client.
    """
    with anyio.fail_after(PATIENCE):
        async with (
            new_node() as node,
            SimProtoGateway(node) as simproto,
            NamedGateway(node) as named,
            Relay() as relay,
        ):
            node.on_call("echo")(lambda call: call.data)
            node.on("echo")(lambda event: "heard")
            gates = (simproto, named, relay)
            places = [await gate.listen(PLACE) for gate in gates]
            async with (
                SimProtoClient(places[0]) as caller,
                NamedClient(places[1]) as emitter,
                RelayClient(places[2]) as client,
            ):
                for place in places:
                    for garbage in (b"\xff" * 64, b"\x00" + b"\xff" * 64):
                        async with await raw(place) as stream:
                            await stream.send(garbage)
                            await to_the_end(stream)
                assert await caller.call("echo", b"still") == b"still"
                assert (await emitter.emit("echo", 1).reply(timeout=PATIENCE)).data == "heard"
                await client.send(client.uuid, b"still")
                assert await read(client) == [(client.uuid, b"still", False)]
