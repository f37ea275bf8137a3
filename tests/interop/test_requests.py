"""Requests and answers as the other side sees them: sections 2, 9 and 10 from outside.

Every request with an async id gets exactly one final answer, and other events don't get an answer.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import pytest

from parley import CallTimeout, Peer
from parley._node.errors import PeerClosedError
from tests.interop.meeting import SIDES, our_config, our_node, their_config
from tests.reference import acts, cbor
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, CODES, RESULT_CODES, TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

ID: Final = 7
FINAL: Final = {TYPES[name] for name in ("Result", "Error", "End")}


def answers(peer: ReferencePeer, async_id: int = ID, stream: int = 1) -> list[Event]:
    """Return all answers to a request up to the Pong of a Ping that was sent after it."""
    acts.ping(peer, 60_000)
    return [
        opened.event
        for opened in peer.events
        if opened.event.category > 2
        and (opened.event.stream, opened.event.async_id) == (stream, async_id)
    ]


def cells(**values: Any) -> bytes:
    """A payload by the cells' names."""
    return cells_payload(**values)


# The rules of docs/protocol.md, and the case.
CALLS_REFUSED: dict[str, tuple[str, bytes, str, int | None]] = {
    "9.8: a topic that nobody has": ("Call", cells(topic="nobody"), "Result", 1),
    "9.8, 9.25: a topic that begins alike": ("Call", cells(topic="parley.echo2"), "Result", 1),
    "9.8: an empty topic": ("Call", cells(topic=""), "Result", 1),
    "2.54: Subscribe": ("Subscribe", cells(topic="news"), "Result", 1),
    "2.54: Unsubscribe": ("Unsubscribe", cells(topic="news"), "Result", 1),
    "2.54: Notify": ("Notify", cells(topic="news", data=1), "Result", 2),
    "2.54: Notify of what is implied": ("Notify", cells(data=1), "Result", 2),
    "9.12: a handler that fails": ("Call", cells(topic="fail"), "Result", 16),
    "9.5, 9.13: a deadline at once": ("Call", cells(topic="hold", deadline_ms=0), "Result", 17),
    "10.19: Emit": ("Emit", cells(name="x", data=b"1", format=3), "End", None),
    "10.18, 10.19: Emit to a namespace": ("Emit", cells(name="x", namespace="y"), "End", None),
}


@pytest.mark.parametrize("side", SIDES)
async def test_the_one_answer_to_a_request_that_is_refused(
    side: Side, subtests: pytest.Subtests
) -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for name, (kind, payload, answer, code) in CALLS_REFUSED.items():
            with subtests.test(name):
                peer.events.clear()
                peer.send_event(1, ID, *TYPES[kind], payload)
                acts.wait_for(peer, lambda event: event.type in FINAL)
                # The ID is free again, and requests without one get no answer.
                peer.send_event(1, 0, *TYPES[kind], payload)
                acts.call(peer, "parley.echo", "after", async_id=ID)
                first, second = answers(peer)
                assert first.type == TYPES[answer]
                assert first.cells().get(CELLS["code"]) == code
                assert second.type == TYPES["Result"]
        acts.close(peer)

    async with our_node() as ours:
        await ours.meet(act, side)
        assert {call[1] for call in ours.called if call[0] == "parley.echo"} == {"after"}


NOT_ANSWERED: dict[str, list[tuple[int, int, tuple[int, int], bytes]]] = {
    "2.16: a call without async id": [
        (1, 0, TYPES["Call"], cells(topic="parley.echo", data="silent"))
    ],
    "2.16, 9.29, 10.16: requests without async id": [
        (1, 0, TYPES[kind], cells(topic="news", name="x"))
        for kind in ("Subscribe", "Unsubscribe", "Notify", "Emit")
    ],
    "2.45, 2.47: malformed without async id": [
        (1, 0, TYPES[kind], b"junk")
        for kind in ("Call", "Subscribe", "Unsubscribe", "Notify", "Notes", "Cancel", "Emit")
    ],
    "2.21: answers that nobody waits for": [
        (1, ID, TYPES[kind], cells(code=0, text="x"))
        for kind in ("Result", "Chunk", "Named Reply", "Error", "End")
    ],
    "2.21: malformed answers that nobody waits for": [
        (1, ID, TYPES[kind], b"junk") for kind in ("Result", "Chunk", "Named Reply", "Error", "End")
    ],
    "2.21: Cancel of nothing": [
        (1, 0, TYPES["Cancel"], cells(request=ID)),
        (1, ID, TYPES["Cancel"], cells(request=ID)),
        (1, ID, TYPES["Cancel"], b"junk"),
    ],
    "2.48: Notes that nobody subscribed to": [(1, 0, TYPES["Notes"], cells(notes=[1, 2]))],
    "2.40: unknown subcategories of 3 and 4": [
        (1, async_id, (category, subcategory), b"x")
        for async_id in (0, ID)
        for category, subcategory in ((3, 9), (3, 255), (4, 5), (4, 255))
    ],
    "2.48: categories that are reserved": [
        (1, ID, (category, 1), b"x") for category in (6, 7, 8, 9, 63)
    ],
    "2.40: what is no question about an account": [
        (1, ID, (5, subcategory), b"x") for subcategory in (3, 4, 255)
    ],
    "2.48, 8.8: an application's": [
        (1, ID, (category, 1), b"x") for category in (64, 65, 254, 255)
    ],
    "8.8: Data on stream 1": [(1, ID, TYPES["Data"], b"x")],
    "9.55: a Pong that nobody waits for": [(0, ID, TYPES["Pong"], b"")],
    "2.24: a Ping without async id": [(0, 0, TYPES["Ping"], b"")],
    "6.20: a Seal": [(0, 0, TYPES["Seal"], b""), (0, ID, TYPES["Seal"], b"")],
    "8.34: credit for Chunks of nothing": [
        (0, 0, TYPES["Window"], cells(stream=1, credit=5, request=ID)),
        (0, ID, TYPES["Window"], cells(stream=1, credit=2**31 - 1, request=65_535)),
    ],
    "3.6: unknown cells": [
        (0, 0, TYPES["Seal"], b""),
        (1, 0, TYPES["Call"], cbor.encode_payload({21: "parley.echo", 18: "any", 300: [None]})),
    ],
}


@pytest.mark.parametrize("encrypted", [True, False])
async def test_what_is_not_answered_and_does_not_hurt(
    encrypted: bool, subtests: pytest.Subtests
) -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for name, events in NOT_ANSWERED.items():
            with subtests.test(name):
                peer.events.clear()
                for stream, async_id, kind, payload in events:
                    if encrypted or kind != TYPES["Seal"]:
                        peer.send_event(stream, async_id, *kind, payload)
                acts.ping(peer, 60_000)
                said = [o.event.type for o in peer.events if o.event.type != TYPES["Seal"]]
                assert said == [TYPES["Pong"]]
        acts.call(peer, "parley.echo", "after")
        acts.close(peer)

    config = our_config() if encrypted else our_config(plaintext="only")
    theirs = their_config() if encrypted else their_config(encrypted=False, plaintext=True)
    async with our_node(config) as ours:
        await ours.meet(act, config=theirs)
        assert ours.called[-1] == ("parley.echo", "after")
        assert await ours.ended() == "normal"


# Deadlines and Cancel.


@pytest.mark.parametrize("side", SIDES)
async def test_a_deadline_that_passes(side: Side) -> None:
    def act(peer: ReferencePeer) -> tuple[list[Event], float]:
        peer.handshake()
        began = perf_counter()
        peer.send("Call", 1, ID, topic="hold", deadline_ms=60)
        acts.result(peer, ID)
        took = perf_counter() - began
        peer.send("Cancel", 1, 0, request=ID)
        got = answers(peer)
        acts.close(peer)
        return got, took

    async with our_node() as ours:
        (answer,), took = await ours.meet(act, side)
        assert answer.cells() == {CELLS["code"]: RESULT_CODES["deadline exceeded"]}
        assert took >= 0.06
        assert ours.stopped == ["hold"]


@pytest.mark.parametrize("side", SIDES)
async def test_a_call_that_is_cancelled(side: Side) -> None:
    def act(peer: ReferencePeer) -> tuple[list[Event], list[Event]]:
        peer.handshake()
        peer.send("Call", 1, ID, topic="hold")
        peer.send("Call", 1, ID + 1, topic="hold")
        for _ in range(3):
            peer.send("Cancel", 1, 0, request=ID)
        acts.result(peer, ID)
        got = answers(peer), answers(peer, ID + 1)
        acts.call(peer, "parley.echo", "the id is free", async_id=ID)
        acts.close(peer)
        return got

    async with our_node() as ours:
        (answer,), other = await ours.meet(act, side)
        assert answer.cells() == {CELLS["code"]: RESULT_CODES["cancelled"]}
        assert other == []
        # The second ends with the connection; the first may have ended before it began.
        await ours.until(lambda: len(ours.stopped) == len(ours.called) - 1)


# Bounds.


# Our node asks.


async def ask(act: Callable[[ReferencePeer], Any], application: Callable[[Peer], Any]) -> Any:
    """Dial a passive reference from a node."""
    async with our_node() as ours:
        return await ours.meet(act, "responder", application=application, automatic=False)


def a_call(peer: ReferencePeer) -> Event:
    """The next Call of our node."""
    return acts.wait_for(peer, lambda event: event.type == TYPES["Call"])


async def test_our_call_names_its_deadline_and_cancels_when_it_has_passed() -> None:
    async def application(peer: Peer) -> None:
        with pytest.raises(CallTimeout):
            await peer.call("any", timeout=0.05)
        assert await peer.call("next", timeout=None) is None
        await peer.close()

    def act(peer: ReferencePeer) -> tuple[int, int, int]:
        peer.handshake()
        call = a_call(peer)
        cancel = acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        assert (cancel.stream, cancel.async_id) == (1, 0)
        again = a_call(peer)
        assert again.async_id != call.async_id  # it stays taken until its answer comes
        peer.send("Result", 1, call.async_id, code=18)
        peer.send("Result", 1, again.async_id, code=0)
        assert acts.closed_with(peer) == "normal"
        return (
            call.cells()[CELLS["deadline_ms"]],
            cancel.cells()[CELLS["request"]],
            call.async_id,
        )

    deadline, cancelled, asked = await ask(act, application)
    assert deadline == 50
    assert cancelled == asked


@pytest.mark.parametrize("code", ["normal", "going-away", "internal-error"])
async def test_a_close_ends_what_waits_with_its_code(code: str) -> None:
    async def application(peer: Peer) -> None:
        with pytest.raises(PeerClosedError) as error:
            await peer.call("any", timeout=None)
        assert error.value.code == CODES[code]
        assert error.value.text == "so it is"
        with pytest.raises(PeerClosedError) as error:
            await peer.call("any")
        assert error.value.code == CODES[code]

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        a_call(peer)
        acts.close(peer, code, "so it is")

    await ask(act, application)
