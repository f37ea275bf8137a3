"""Row 19, arithmetic on the peer's numbers: every number that a peer sends, at both ends of
its range and beyond them, is refused or clamped, and is never a crash. Here: under the keys of
an open connection.

The sender is the reference peer with valid keys; after each number our node serves it and a
bystander as before, or has ended its connection with the exact code. Elsewhere: numbers in the
handshake and in answers (tests/handshake, test_row_19_answers.py), in the encoding
itself (row 17), any other cells (tests/node/protocol/test_properties_garbage.py), sizes and
offsets of files (tests/node/apps/transfer/test_protocol.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest

from tests.interop.meeting import (
    their_config,
    with_bystander,
)
from tests.reference import acts
from tests.reference.handshake import LIMITS
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.wire import (
    ARRAY_CELLS,
    BOOLEAN_CELLS,
    BYTES_CELLS,
    CELLS,
    MAP_CELLS,
    NAMES,
    TEXT_CELLS,
    TYPES,
    cells_payload,
    frame_limit,
)
from tests.security.numbers import (
    BYTES,
    LARGEST_CODE,
    NUMBERS,
    PROTOCOL_ERROR,
    TAKEN,
    Verdict,
    always,
    assert_calm,
    framed,
    only,
    within,
)

pytestmark = pytest.mark.anyio

GREATEST_CREDIT: Final = 2**31 - 1
WINDOW: Final = 20_000
MALFORMED: Final = "result 23"
EVENT: Final = "shop.ordered"
LONGEST_TIME: Final = 2**40 - 1

Send = Callable[[ReferencePeer, int], object]


@dataclass(frozen=True)
class Field:
    """A number of an event: how it is sent, what becomes of it, and which cells it is."""

    send: Send
    verdict: Verdict
    cells: tuple[str, ...] = ()
    numbers: tuple[int, ...] = NUMBERS


def opened(peer: ReferencePeer) -> int:
    """A stream whose handler reads nothing."""
    return acts.open_stream(peer, "hold")


def request(name: str, cell: str) -> Send:
    """A request with the number in a cell; raises Refused by its Result."""

    def send(peer: ReferencePeer, number: int) -> None:
        topic = "parley.echo" if name == "Call" else "news"
        peer.send(name, 1, 9, topic=topic, **{cell: number})
        code = acts.result(peer, 9)[CELLS["code"]]
        if code:
            raise Refused(code)

    return send


def emitted(peer: ReferencePeer, number: int) -> None:
    """An event whose data is in some format; raises Refused by its Error."""
    peer.send("Emit", 1, 0, name="x", data=b"1", format=number)
    peer.send("Emit", 1, 9, name="x", data=b"1", format=number)
    answer = acts.wait_for(peer, lambda e: e.type in (TYPES["End"], TYPES["Error"]))
    if answer.type == TYPES["Error"]:
        raise Refused(answer.cells()[CELLS["code"]])


class Refused(Exception):
    """A request was answered with a code other than 0."""


def asked(what: str, cell: str, **others: object) -> Send:
    """A request of the bus with the number in a cell; raises Refused by its Answer."""

    def send(peer: ReferencePeer, number: int) -> None:
        peer.send(f"Bus {what}", acts.open_stream(peer, "bus"), 9, **{cell: number}, **others)
        answer = acts.wait_for(peer, lambda e: e.type == TYPES["Bus Answer"])
        if answer.cells()[CELLS["code"]]:
            raise Refused(answer.cells()[CELLS["code"]])

    return send


def rekeyed(peer: ReferencePeer, number: int) -> None:
    """The KeyUpdate of a rekey with a number that need not be its own."""
    payload = cells_payload(epoch=1, rekey=number)
    with patch.object(peer.rekeying, "update_payload", lambda: payload):
        acts.rekey(peer)


def updated(peer: ReferencePeer, number: int) -> None:
    """A plain KeyUpdate to some epoch; the reference changes its keys with it."""
    if number == 1:
        peer.update_keys()
    else:
        peer.send("KeyUpdate", 0, epoch=number)


LIMIT: Final = frame_limit(WINDOW, "ed25519", "chain")
# Under the keys of an open connection.
FIELDS: Final[dict[str, Field]] = {
    "Window credit": Field(
        lambda p, n: p.send("Window", 0, stream=opened(p), credit=n),
        within(0, GREATEST_CREDIT - WINDOW),
        ("credit",),
        (*NUMBERS, GREATEST_CREDIT - WINDOW, GREATEST_CREDIT - WINDOW + 1),
    ),
    "Window stream": Field(
        lambda p, n: (opened(p), p.send("Window", 0, stream=n, credit=1)),
        only(3),
        ("stream",),
        (*NUMBERS, 3, 4, 5),
    ),
    "Window request": Field(
        lambda p, n: p.send("Window", 0, stream=1, credit=1, request=n),
        within(1, 65_535),
        ("request",),
    ),
    "Window credit for a request": Field(
        lambda p, n: (
            p.send("Call", 1, 9, topic="hold", window=1),
            p.send("Window", 0, stream=1, credit=n, request=9),
        ),
        within(0, GREATEST_CREDIT - 1),
        (),
        (*NUMBERS, GREATEST_CREDIT - 1),
    ),
    "Open window": Field(
        lambda p, n: p.send("Open", 3, label="hold", window=n),
        within(1, GREATEST_CREDIT),
        ("window",),
    ),
    "Reset stream": Field(
        lambda p, n: (opened(p), p.send("Reset", 0, stream=n, code=32)),
        only(3),
        ("stream",),
        (*NUMBERS, 3, 4, 5),
    ),
    "Reset code": Field(
        lambda p, n: p.send("Reset", 0, stream=opened(p), code=n),
        within(0, LARGEST_CODE),
        ("code",),
    ),
    # Nobody has been told anything yet; without resuming it is never right.
    "Received": Field(
        lambda p, n: p.send("Received", 0, received=n), always(PROTOCOL_ERROR), ("received",)
    ),
    "Notify number": Field(
        lambda p, n: p.send("Notify", 1, 0, topic="news", data=1, number=n),
        always(TAKEN),
        ("number",),
    ),
    "Subscribe number": Field(
        lambda p, n: subscribed(p, n), within(0, 2**64 - 1, MALFORMED), ("number",)
    ),
    "KeyUpdate epoch": Field(updated, only(1), ("epoch",)),
    "KeyUpdate rekey, of none": Field(
        lambda p, n: p.send("KeyUpdate", 0, epoch=1, rekey=n), always(PROTOCOL_ERROR), ("rekey",)
    ),
    "KeyUpdate rekey": Field(rekeyed, only(1), ("rekey",)),
    # A deadline that has passed is answered with code 17, unless the handler was faster.
    "Call deadline": Field(
        request("Call", "deadline_ms"),
        lambda n: MALFORMED if n < 0 else "taken or late" if n <= 2 else TAKEN,
        ("deadline_ms",),
    ),
    "Call window": Field(
        request("Call", "window"), within(1, GREATEST_CREDIT, MALFORMED), ("window",)
    ),
    "Subscribe window": Field(
        request("Subscribe", "window"), within(1, GREATEST_CREDIT, MALFORMED), ("window",)
    ),
    "Cancel request": Field(
        lambda p, n: (p.send("Call", 1, 9, topic="hold"), p.send("Cancel", 1, request=n)),
        always(TAKEN),
        ("request",),
        (*NUMBERS, 9),
    ),
    "Result code, unasked": Field(
        lambda p, n: p.send("Result", 1, 9, code=n, stream=n), always(TAKEN), ("code", "stream")
    ),
    "Emit format": Field(
        emitted, within(0, 255, MALFORMED), ("format",), (*NUMBERS, 15, 16, 17, 254, 256)
    ),
    "Error code": Field(
        lambda p, n: p.send("Error", 1, 9, code=n, text="x"), always(TAKEN), ("code",)
    ),
    "bus: count": Field(
        asked("History", "count", name=EVENT, after="0-0"), within(1, 1_000, MALFORMED), ("count",)
    ),
    "bus: wait": Field(
        asked("History", "wait_ms", name=EVENT, after="0-0", count=1),
        within(0, 60_000, MALFORMED),
        ("wait_ms",),
        (*NUMBERS, 60_000, 60_001),
    ),
    "bus: idle": Field(
        asked("Claim", "idle_ms", name=EVENT, group="g", consumer="c", count=1),
        within(0, LONGEST_TIME, MALFORMED),
        ("idle_ms",),
        (*NUMBERS, LONGEST_TIME, LONGEST_TIME + 1),
    ),
    "bus: delay": Field(
        asked("Nack", "delay_ms", name=EVENT, group="g", consumer="c", ids=["1-0"], text="x"),
        within(0, LONGEST_TIME, MALFORMED),
        ("delay_ms",),
        (*NUMBERS, LONGEST_TIME, LONGEST_TIME + 1),
    ),
    **{
        f"bus: {cell}": Field(
            asked("Trim", cell, name=EVENT), within(0, 2**63 - 1, MALFORMED), (cell,)
        )
        for cell in ("max_length", "max_bytes")
    },
    # Fixed fields: of their own width, so that nothing is beyond them.
    "the length of a frame": Field(
        framed,
        lambda n: "bad-record" if n <= LIMIT else "frame-too-large",
        (),
        (0, 1, 3, 4, 5, 8, 9, 24, 25, 40, 41, 42, 16_384, LIMIT, LIMIT + 1, 2**31, 2**32 - 1),
    ),
    "the stream of an event": Field(
        lambda p, n: p.send_event(n, 0, 64, 1, b"x"),
        only(1),
        (),
        (0, 1, 2, 3, 4, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1),
    ),
    "the stream of Open": Field(
        lambda p, n: p.send("Open", n, label="hold"),
        lambda n: TAKEN if n > 1 and n % 2 else PROTOCOL_ERROR,
        (),
        (0, 1, 2, 3, 4, 5, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1),
    ),
    "the async id of a request": Field(
        lambda p, n: (
            p.send("Call", 1, n, topic="parley.echo", data=n),
            acts.result(p, n) if n else None,
        ),
        always(TAKEN),
        (),
        (0, 1, 2, 255, 256, 32_767, 32_768, 65_534, 65_535),
    ),
    "the async id of an answer": Field(
        lambda p, n: p.send("Result", 1, n, code=0), always(TAKEN), (), (0, 1, 65_534, 65_535)
    ),
    "the async id of Ping": Field(
        lambda p, n: acts.ping(p, n) if n else p.send("Ping", 0, 0),
        always(TAKEN),
        (),
        (0, 1, 2, 65_534, 65_535),
    ),
    "the async id of Pong": Field(
        lambda p, n: p.send("Pong", 0, n), always(TAKEN), (), (0, 1, 65_534, 65_535)
    ),
    "a category": Field(
        lambda p, n: p.send_event(1, 0, n, 1, b"x"),
        lambda n: PROTOCOL_ERROR if n < 3 else TAKEN,
        (),
        BYTES,
    ),
    **{
        f"a subcategory of {category}": Field(
            lambda p, n, category=category: p.send_event(1, 0, category, n, b"x"),  # type: ignore[misc]  # mypy infers no default
            (lambda n: TAKEN if n == 5 else PROTOCOL_ERROR) if category == 2 else within(1, 255),
            (),
            BYTES,
        )
        for category in (2, 3, 4, 5, 64, 255)
    },
    "any number of an application": Field(
        lambda p, n: echoed(p, n), always(TAKEN), (), NUMBERS
    ),
}  # fmt: skip


def subscribed(peer: ReferencePeer, number: int) -> None:
    """To go on from some place of a topic that remembers nothing; raises Refused by its Result."""
    peer.send("Subscribe", 1, 9, topic="news", topic_epoch=bytes(8), number=number)
    if code := acts.result(peer, 9)[CELLS["code"]]:
        raise Refused(code)


def echoed(peer: ReferencePeer, number: int) -> None:
    """Data has no range but the encoding's: it comes back as it was."""
    assert acts.call(peer, "parley.echo", number)[CELLS["data"]] == number


def outcome(peer: ReferencePeer, field: Field, number: int) -> str:
    """What our node makes of a number: `taken` if it goes on, the code of its Close, or
    that of its Result."""
    peer.handshake()
    try:
        field.send(peer, number)
        acts.ping(peer, 77)
        assert acts.call(peer, "parley.echo", "on", async_id=78)[CELLS["data"]] == "on"
    except Refused as refused:
        return f"result {refused.args[0]}"
    except Closed as closed:
        return NAMES[closed.code]
    finally:
        peer.channel.close()
    return TAKEN


def agrees(verdict: str, found: str) -> bool:
    return found in ((TAKEN, "result 17") if verdict == "taken or late" else (verdict,))


OUR_LIMITS: Final = {"max_payload": WINDOW, "stream_window": WINDOW}


@pytest.mark.parametrize("name", FIELDS)
async def test_a_number_on_an_open_connection(name: str, tmp_path: Path) -> None:
    field = FIELDS[name]
    config = their_config(limits=OUR_LIMITS)
    async with with_bystander() as ours:
        ours.node.topic("news")
        if name.startswith("bus"):
            bus = ours.node.bus(f"sqlite:///{tmp_path}/bus.db", allow=lambda request: True)
            await bus.publish(EVENT, {"of": "tea"})
        found = {
            number: await ours.meet(lambda p, n=number: outcome(p, field, n), config=config)  # type: ignore[misc]  # mypy infers no default
            for number in field.numbers
        }
        wrong = {n: seen for n, seen in found.items() if not agrees(field.verdict(n), seen)}
        assert wrong == {}
        assert_calm(ours)


def test_every_unsigned_cell_is_here() -> None:
    """A new cell that is a number gets its place in these tables."""
    others = {*TEXT_CELLS, *BYTES_CELLS, *ARRAY_CELLS, *MAP_CELLS}
    others |= {*BOOLEAN_CELLS, CELLS["data"]}
    unsigned = {name for name, number in CELLS.items() if number not in others}
    covered = {cell for field in FIELDS.values() for cell in field.cells} | set(LIMITS)
    covered |= {"attempt", "resume_ms"}  # of the handshake: tests/handshake
    # Of tunnels and envelopes: federation.json, in tests/node/federation/test_vectors.py.
    covered |= {"expires_ms", "hop", "made_ms"}
    covered |= {"replaced"}  # of topics: topics.json, in tests/node/messaging
    assert unsigned == covered | {"version"}
