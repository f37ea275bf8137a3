"""Calls that run at most once (section 18), seen from the other side, and the node's
announcement.
"""

from typing import Any, Final

import pytest

from parley import Call, CallRefused, Peer
from parley._node.errors import NotOnceError
from tests.interop.meeting import Ours, our_node, their_config
from tests.reference import acts
from tests.reference.peer import ReferencePeer
from tests.reference.wire import CELLS, RESULT_CODES, TYPES

pytestmark = pytest.mark.anyio

KEY: Final = bytes(range(16))
NOT_ONCE: Final = RESULT_CODES["not once"]
MALFORMED: Final = RESULT_CODES["malformed"]


def add_orders(ours: Ours) -> list[Any]:
    """A handler that runs once for each key, and its arguments."""
    orders: list[Any] = []

    @ours.node.on_call("order", once=True)
    async def order(call: Call) -> object:
        orders.append(call.data)
        if call.data == "nothing":
            raise CallRefused(64, len(orders))
        return len(orders)

    return orders


def ask(peer: ReferencePeer, topic: str, key: object, async_id: int = 1, **cells: Any) -> Any:
    """The code and the data of the Result of a Call with a key."""
    peer.send("Call", 1, async_id, topic=topic, once_key=key, **cells)
    result = acts.result(peer, async_id)
    return result[CELLS["code"]], result.get(CELLS["data"])


async def test_a_key_is_answered_alike_over_all_sessions() -> None:
    def first(peer: ReferencePeer) -> list[Any]:
        peer.handshake()
        answers = [
            ask(peer, "order", KEY, data="tea"),
            ask(peer, "order", KEY, data="tea", headers={"a": 1}, deadline_ms=5_000),
            ask(peer, "order", KEY, data="coffee"),
            ask(peer, "order", KEY),
            ask(peer, "parley.echo", KEY, data="tea"),
            ask(peer, "order", bytes(16), data="nothing"),
        ]
        acts.close(peer)
        return answers

    def second(peer: ReferencePeer) -> list[Any]:
        peer.handshake()
        peer.send("Call", 1, 0, topic="order", once_key=bytes([1] * 16), data="silent")
        answers = [
            ask(peer, "order", KEY, data="tea"),
            ask(peer, "order", bytes(16), data="nothing"),
            ask(peer, "order", bytes([2] * 16), data="tea"),
            ask(peer, "order", bytes(15), data="short"),
            ask(peer, "order", bytes(17), data="long"),
            ask(peer, "order", "0123456789abcdef", data="text"),
        ]
        acts.call(peer, "order", "plain", async_id=9)
        acts.close(peer)
        return answers

    async with our_node() as ours:
        orders = add_orders(ours)
        assert await ours.meet(first) == [
            (0, 1),
            (0, 1),
            (MALFORMED, None),
            (MALFORMED, None),
            (NOT_ONCE, None),
            (64, 2),
        ]
        assert await ours.meet(second) == [(0, 1), (64, 2), (0, 3), *[(MALFORMED, None)] * 3]
        assert orders == ["tea", "nothing", "tea", "plain"]


@pytest.mark.parametrize("epoch", [None, b"seven by", b"nine byte", "12345678"])
async def test_a_key_goes_to_those_that_remember_and_nobody_else(epoch: object) -> None:
    remembers = epoch == b"seven by"  # which are eight
    outcomes: list[object] = []

    async def application(peer: Peer) -> None:
        assert peer.once_epoch == (epoch if remembers else None)
        try:
            outcomes.append(await peer.call("order", "tea", once=KEY))
        except NotOnceError as error:
            outcomes.append(error.received)
        await peer.call("last")
        await peer.close()

    def act(peer: ReferencePeer) -> list[Any]:
        peer.handshake()
        calls: list[dict[int, Any]] = []
        while not calls or calls[-1].get(CELLS["topic"]) != "last":
            event = acts.wait_for(peer, lambda event: event.type == TYPES["Call"])
            calls.append(event.cells())
            peer.send("Result", 1, event.async_id, code=0, data="done")
        acts.serve(peer)
        return [(call[CELLS["topic"]], call.get(CELLS["once_key"])) for call in calls]

    node = {"software": "reference"} | ({} if epoch is None else {"once": epoch})
    async with our_node() as ours:
        config = their_config(node=node)
        calls = await ours.meet(act, "responder", config=config, application=application)
    assert outcomes == (["done"] if remembers else [False])
    assert calls == ([("order", KEY)] if remembers else []) + [("last", None)]
