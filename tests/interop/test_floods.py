"""Floods of what has a rate (section 14), by the reference against our node; and a sender that
seals as often as it may.
"""

from collections.abc import Callable
from typing import Final

import pytest

from tests.interop.meeting import our_node, their_config, with_bystander
from tests.reference import acts
from tests.reference.peer import ReferencePeer
from tests.reference.wire import RESET_CODES

pytestmark = pytest.mark.anyio

Flood = Callable[[ReferencePeer], object]


# The stream is the first that the reference, an initiator, opens.
FLOODS: Final[dict[str, Flood]] = {
    "KeyUpdates": lambda peer: peer.update_keys(),
    "Seals": lambda peer: peer.send("Seal", 0),
    "Pongs": lambda peer: peer.send("Pong", 0, 7),
    "Windows": lambda peer: peer.send("Window", 0, stream=1, credit=1, request=9),
    "Resets": lambda peer: peer.send("Reset", 0, stream=3, code=32),
}
# More than 64, and one for each second that a slow machine may take.
MANY: Final = 150


@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_ends_its_connection(name: str) -> None:
    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        stream = acts.open_stream(peer, "hold")
        acts.reset(peer, stream, RESET_CODES["cancelled"])
        peer.automatic = False  # after the flood it only reads
        for _ in range(MANY):
            FLOODS[name](peer)
        return acts.closed_with(peer)

    async with with_bystander() as ours:
        assert await ours.meet(act) == await ours.ended() == "overloaded"


@pytest.mark.parametrize("sealing", ["chain", "each"])
async def test_a_seal_after_each_event_is_none(sealing: str) -> None:
    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        for number in range(1, 201):
            acts.call(peer, "parley.echo", number, async_id=number)
            peer.seal()
        acts.close(peer)
        return len(acts.received(peer, "Result"))

    async with our_node() as ours:
        assert await ours.meet(act, config=their_config(sealing=(sealing,))) == 200
        assert await ours.ended() == "normal"
