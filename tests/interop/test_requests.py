"""Requests and answers as the other side sees them: sections 2, 9 and 10 from outside.

Every request with an async id gets exactly one final answer, and nothing else
gets any.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import anyio
import pytest

from parley import CallRefused, CallTimeout, Peer
from parley._node.errors import PeerClosedError
from parley._node.protocol.allowance import Rate
from tests.interop.meeting import SIDES, our_config, our_node, their_config, with_bystander
from tests.reference import acts, cbor
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, CODES, RESULT_CODES, TYPES, Event, cells_payload
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

ID: Final = 7
FINAL: Final = {TYPES[name] for name in ("Result", "Error", "End")}
MALFORMED: Final = RESULT_CODES["malformed"]


def answers(peer: ReferencePeer, async_id: int = ID, stream: int = 1) -> list[Event]:
    """What came for a request up to the Pong of a Ping that was sent after it."""
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


CALLS_REFUSED: dict[str, tuple[str, bytes, str, int | None]] = {
    "a topic that nobody has": ("Call", cells(topic="nobody"), "Result", 1),
    "a topic that begins alike": ("Call", cells(topic="parley.echo2"), "Result", 1),
    "an empty topic": ("Call", cells(topic=""), "Result", 1),
    "Subscribe": ("Subscribe", cells(topic="news"), "Result", 1),
    "Unsubscribe": ("Unsubscribe", cells(topic="news"), "Result", 1),
    "Notify": ("Notify", cells(topic="news", data=1), "Result", 2),
    "Notify of what is implied": ("Notify", cells(data=1), "Result", 2),
    "a handler that fails": ("Call", cells(topic="fail"), "Result", 16),
    "a deadline at once": ("Call", cells(topic="hold", deadline_ms=0), "Result", 17),
    "Emit": ("Emit", cells(name="x", data=b"1", format=3), "End", None),
    "Emit to a namespace": ("Emit", cells(name="x", namespace="y"), "End", None),
    **{
        f"malformed: {kind} {name}": (kind, payload, "Error" if kind == "Emit" else "Result", 23)
        for kind, name, payload in [
            ("Call", "without payload", b""),
            ("Call", "without topic", cells(data=1)),
            ("Call", "with a number for a topic", cells(topic=5)),
            ("Call", "with bytes for a topic", cells(topic=b"parley.echo")),
            ("Call", "with an array of headers", cells(topic="parley.echo", headers=[1])),
            ("Call", "with numbered headers", cells(topic="parley.echo", headers={1: 2})),
            ("Call", "with a text for a deadline", cells(topic="parley.echo", deadline_ms="1")),
            ("Call", "with a negative deadline", cells(topic="parley.echo", deadline_ms=-1)),
            ("Call", "with a text for a window", cells(topic="parley.echo", window="1")),
            ("Call", "with window 0", cells(topic="parley.echo", window=0)),
            ("Call", "with window 2^31", cells(topic="parley.echo", window=2**31)),
            ("Call", "that is no LBM", b"junk"),
            ("Call", "that is an array", b"\x80"),
            ("Call", "with text keys", cbor.encode_value({"topic": "parley.echo"})),
            ("Call", "with bytes behind it", cells(topic="parley.echo") + b"\0"),
            ("Call", "cut short", cells(topic="parley.echo")[:-1]),
            ("Call", "with a key twice", b"\xa2\x15\x64hold\x15\x64hold"),
            ("Call", "with a long integer", b"\xa1\x18\x15\x64hold"),
            ("Call", "of indefinite length", b"\xbf\x15\x64hold\xff"),
            ("Call", "with a tag", b"\xa2\x15\x64hold\x16\xc0\x00"),
            ("Call", "with a short float", b"\xa2\x15\x64hold\x16\xf9\x00\x00"),
            ("Call", "with a text that is no UTF-8", b"\xa1\x15\x61\xff"),
            ("Subscribe", "without topic", cells(data=1)),
            ("Subscribe", "that is no LBM", b"junk"),
            ("Unsubscribe", "without topic", b""),
            ("Notify", "with a number for a topic", cells(topic=1)),
            ("Notify", "that is no LBM", b"junk"),
            ("Emit", "without name", cells(data=b"1", format=3)),
            ("Emit", "with a number for a name", cells(name=1)),
            ("Emit", "with a number for a namespace", cells(name="x", namespace=1)),
            ("Emit", "that is no LBM", b"junk"),
        ]
    },
}


@sweep("name", CALLS_REFUSED)
@sweep("side", SIDES)
async def test_the_one_answer_to_a_request_that_is_refused(side: Side, name: str) -> None:
    kind, payload, answer, code = CALLS_REFUSED[name]

    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        peer.send_event(1, ID, *TYPES[kind], payload)
        acts.wait_for(peer, lambda event: event.type in FINAL)
        # The id is free again, and nothing is answered without one.
        peer.send_event(1, 0, *TYPES[kind], payload)
        acts.call(peer, "parley.echo", "after", async_id=ID)
        got = answers(peer)
        acts.close(peer)
        return got

    async with our_node() as ours:
        first, second = await ours.meet(act, side)
        assert first.type == TYPES[answer]
        assert first.cells().get(CELLS["code"]) == code
        assert second.type == TYPES["Result"]
        assert ("parley.echo", "after") in ours.called
        assert not [call for call in ours.called if call[0] == "parley.echo" and call[1] != "after"]


async def test_what_a_failed_handler_tells_its_caller() -> None:
    def act(peer: ReferencePeer) -> dict[int, Any]:
        peer.handshake()
        got = acts.call(peer, "fail")
        acts.close(peer)
        return got

    async with our_node() as ours:
        got = await ours.meet(act)
        assert got == {CELLS["code"]: 16, CELLS["data"]: "the handler failed"}
        assert any("the handler of 'fail' failed" in line for line in ours.log)


NOT_ANSWERED: dict[str, list[tuple[int, int, tuple[int, int], bytes]]] = {
    "a call without async id": [(1, 0, TYPES["Call"], cells(topic="parley.echo", data="silent"))],
    "requests without async id": [
        (1, 0, TYPES[kind], cells(topic="news", name="x"))
        for kind in ("Subscribe", "Unsubscribe", "Notify", "Emit")
    ],
    "malformed without async id": [
        (1, 0, TYPES[kind], b"junk")
        for kind in ("Call", "Subscribe", "Unsubscribe", "Notify", "Notes", "Cancel", "Emit")
    ],
    "answers that nobody waits for": [
        (1, ID, TYPES[kind], cells(code=0, text="x"))
        for kind in ("Result", "Chunk", "Named Reply", "Error", "End")
    ],
    "malformed answers that nobody waits for": [
        (1, ID, TYPES[kind], b"junk") for kind in ("Result", "Chunk", "Named Reply", "Error", "End")
    ],
    "Cancel of nothing": [
        (1, 0, TYPES["Cancel"], cells(request=ID)),
        (1, ID, TYPES["Cancel"], cells(request=ID)),
        (1, ID, TYPES["Cancel"], b"junk"),
    ],
    "Notes that nobody subscribed to": [(1, 0, TYPES["Notes"], cells(notes=[1, 2]))],
    "unknown subcategories of 3 and 4": [
        (1, async_id, (category, subcategory), b"x")
        for async_id in (0, ID)
        for category, subcategory in ((3, 9), (3, 255), (4, 5), (4, 255))
    ],
    "categories that are reserved": [(1, ID, (category, 1), b"x") for category in (6, 7, 8, 9, 63)],
    "what is no question about an account": [
        (1, ID, (5, subcategory), b"x") for subcategory in (3, 4, 255)
    ],
    "an application's": [(1, ID, (category, 1), b"x") for category in (64, 65, 254, 255)],
    "Data on stream 1": [(1, ID, TYPES["Data"], b"x")],
    "a Pong that nobody waits for": [(0, ID, TYPES["Pong"], b"")],
    "a Ping without async id": [(0, 0, TYPES["Ping"], b"")],
    "a Seal": [(0, 0, TYPES["Seal"], b""), (0, ID, TYPES["Seal"], b"")],
    "credit for Chunks of nothing": [
        (0, 0, TYPES["Window"], cells(stream=1, credit=5, request=ID)),
        (0, ID, TYPES["Window"], cells(stream=1, credit=2**31 - 1, request=65_535)),
    ],
    "unknown cells": [
        (0, 0, TYPES["Seal"], b""),
        (1, 0, TYPES["Call"], cbor.encode_payload({21: "parley.echo", 18: "any", 300: [None]})),
    ],
}


@sweep("name", NOT_ANSWERED)
@sweep("encrypted", [True, False])
@sweep("side", SIDES)
async def test_what_is_not_answered_and_does_not_hurt(
    side: Side, name: str, encrypted: bool
) -> None:
    def act(peer: ReferencePeer) -> list[tuple[int, int]]:
        peer.handshake()
        for stream, async_id, kind, payload in NOT_ANSWERED[name]:
            if encrypted or kind != TYPES["Seal"]:
                peer.send_event(stream, async_id, *kind, payload)
        acts.ping(peer, 60_000)
        said = [o.event.type for o in peer.events if o.event.type != TYPES["Seal"]]
        acts.call(peer, "parley.echo", "after")
        acts.close(peer)
        return said

    config = our_config() if encrypted else our_config(plaintext="only")
    theirs = their_config() if encrypted else their_config(encrypted=False, plaintext=True)
    async with our_node(config) as ours:
        assert await ours.meet(act, side, config=theirs) == [TYPES["Pong"]]
        assert ours.called[-1] == ("parley.echo", "after")
        assert await ours.ended() == "normal"


async def test_a_call_without_async_id_is_handled_all_the_same() -> None:
    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        peer.send("Call", 1, 0, topic="parley.echo", data="silent")
        got = answers(peer, 0)
        acts.close(peer)
        return got

    async with our_node() as ours:
        assert await ours.meet(act) == []
        assert ours.called == [("parley.echo", "silent")]


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


async def test_cancel_that_crosses_the_answer() -> None:
    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        peer.send("Call", 1, ID, topic="parley.echo", data=1)
        acts.result(peer, ID)
        peer.send("Cancel", 1, 0, request=ID)
        got = answers(peer)
        acts.close(peer)
        return got

    async with our_node() as ours:
        (answer,) = await ours.meet(act)
        assert answer.cells()[CELLS["code"]] == 0


async def test_cancel_on_another_stream_cancels_nothing() -> None:
    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        stream = acts.open_stream(peer, "hold")
        peer.send("Call", 1, ID, topic="hold")
        peer.send("Cancel", stream, 0, request=ID)
        got = answers(peer)
        acts.close(peer)
        return got

    async with our_node() as ours:
        assert await ours.meet(act) == []


async def test_calls_on_a_stream_are_answered_there() -> None:
    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        stream = acts.open_stream(peer, "hold")
        peer.send("Call", stream, ID, topic="parley.echo", data="there")
        peer.send("Call", 1, ID, topic="hold")
        acts.result(peer, ID, stream)
        got = answers(peer, stream=stream)
        assert answers(peer) == []
        acts.close(peer)
        return got

    async with our_node() as ours:
        (answer,) = await ours.meet(act)
        assert answer.cells() == {CELLS["code"]: 0, CELLS["data"]: "there"}


# Bounds.


async def test_of_1025_unanswered_requests_one_is_refused() -> None:
    def act(peer: ReferencePeer) -> list[tuple[int, int]]:
        peer.handshake()
        for number in range(1, 1_026):
            peer.send("Call", 1, number, topic="hold")
        refused = acts.result(peer, 1_025)
        peer.send("Call", 1, 0, topic="parley.echo", data="dropped")
        peer.send("Cancel", 1, 0, request=500)
        acts.result(peer, 500)
        echo = acts.call(peer, "parley.echo", async_id=1_026)
        results = [o.event for o in peer.events if o.event.type == TYPES["Result"]]
        assert [event.async_id for event in results] == [1_025, 500, 1_026]
        acts.close(peer)
        return [(1_025, refused[CELLS["code"]]), (1_026, echo[CELLS["code"]])]

    async with with_bystander() as ours:
        overloaded = RESULT_CODES["overloaded"]
        assert await ours.meet(act) == [(1_025, overloaded), (1_026, 0)]
        assert len([call for call in ours.called if call[0] == "hold"]) == 1_024
        assert ("parley.echo", "dropped") not in ours.called


async def test_requests_of_more_than_32_mib_are_refused() -> None:
    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        data = bytes(1_000_000)
        for number in range(1, 36):
            peer.send("Call", 1, number, topic="hold", data=data)
        codes = [acts.result(peer, number)[CELLS["code"]] for number in (34, 35)]
        assert answers(peer, 33) == []
        codes.append(acts.call(peer, "parley.echo", async_id=36)[CELLS["code"]])
        acts.close(peer)
        return codes

    async with with_bystander() as ours:
        overloaded = RESULT_CODES["overloaded"]
        assert await ours.meet(act) == [overloaded, overloaded, 0]
        assert len(ours.called) == 34


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.pure
async def test_64_pings_are_answered_and_many_more_at_once_are_not(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether their Pongs wait to be sent or not: what ends them is the one limit or the other."""
    monkeypatch.setattr("parley._node.protocol.stream_zero.PINGS", Rate(100, 1.0))

    def burst(peer: ReferencePeer, count: int) -> None:
        frames: list[bytes] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer.channel, "send_raw", frames.append)
            for number in range(1, count + 1):
                peer.send("Ping", 0, number)
        peer.send_raw(b"".join(frames))

    def act(peer: ReferencePeer) -> tuple[list[int], str]:
        peer.handshake()
        burst(peer, 64)
        acts.wait_for(peer, lambda e: e.type == TYPES["Pong"] and e.async_id == 64)
        pongs = [o.event.async_id for o in peer.events if o.event.type == TYPES["Pong"]]
        burst(peer, 300)
        return pongs, acts.closed_with(peer)

    async with with_bystander() as ours:
        pongs, closed = await ours.meet(act, side)
        assert pongs == list(range(1, 65))
        assert closed == await ours.ended() == "overloaded"


# Our node asks.


async def ask(act: Callable[[ReferencePeer], Any], application: Callable[[Peer], Any]) -> Any:
    """Our node dials a reference that does nothing of itself."""
    async with our_node() as ours:
        return await ours.meet(act, "responder", application=application, automatic=False)


def a_call(peer: ReferencePeer) -> Event:
    """The next Call of our node."""
    return acts.wait_for(peer, lambda event: event.type == TYPES["Call"])


@pytest.mark.parametrize(
    ("payload", "code", "data"),
    [
        (cells(code=1), 1, None),
        (cells(code=3, data="no"), 3, "no"),
        (cells(code=16, data="x"), 16, "x"),
        (cells(code=20), 20, None),
        (cells(code=64, data=[1]), 64, [1]),
        (cells(code="0"), MALFORMED, None),
        (cells(data=1), MALFORMED, None),
        (b"", MALFORMED, None),
        (b"junk", MALFORMED, None),
    ],
)
async def test_a_result_that_is_no_success(payload: bytes, code: int, data: object) -> None:
    async def application(peer: Peer) -> None:
        with pytest.raises(CallRefused) as error:
            await peer.call("any", timeout=None)
        assert (error.value.code, error.value.data) == (code, data)
        assert await peer.call("any", timeout=None) == "fine"
        await peer.close()

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        call = a_call(peer)
        peer.send_event(1, call.async_id, *TYPES["Result"], payload)
        peer.send("Result", 1, call.async_id, code=0, data="a second answer is ignored")
        peer.send("Result", 1, a_call(peer).async_id, code=0, data="fine")
        assert acts.closed_with(peer) == "normal"

    await ask(act, application)


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


async def test_our_call_that_is_given_up_is_cancelled() -> None:
    async def application(peer: Peer) -> None:
        with anyio.move_on_after(0.05):
            await peer.call("any", timeout=None)
        await peer.close()

    def act(peer: ReferencePeer) -> bool:
        peer.handshake()
        call = a_call(peer)
        cancel = acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        assert acts.closed_with(peer) == "normal"
        return bool(cancel.cells()[CELLS["request"]] == call.async_id)

    assert await ask(act, application)


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


async def test_a_graceful_close_sends_what_was_queued_first() -> None:
    async def application(peer: Peer) -> None:
        stream = peer.open_stream("app/any")
        await stream.send(b"x" * 100_000)
        await peer.close()

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        assert acts.closed_with(peer) == "normal"
        return sum(len(o.event.payload) for o in peer.events if o.event.type == TYPES["Data"])

    assert await ask(act, application) == 100_000
