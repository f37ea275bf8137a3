"""Row 19, arithmetic on the peer's numbers: every number that a peer sends, at both ends of
its range and beyond them, is refused or clamped, and is never a crash.

The sender is the reference peer with valid keys; after each number our node serves it and a
bystander as before, or has ended its connection with the exact code. Elsewhere: numbers in
the encoding itself (row 17), any other cells (tests/node/protocol/test_properties_garbage.py),
sizes and offsets of files (tests/node/cli/transfer/test_protocol.py).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import pytest

from node import CallRefused, HandshakeError, Peer, StreamResetError
from tests.interop.meeting import (
    Ours,
    their_config,
    their_identity,
    with_bystander,
)
from tests.interop.test_handshake_faults import cells_of, having, instead
from tests.interop.test_topics import accept, asked, read
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.establish import Change, Misbehaviour
from tests.reference.handshake import LIMITS, handshake_cells
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.wire import (
    ARRAY_CELLS,
    BYTES_CELLS,
    CELLS,
    CODES,
    MAP_CELLS,
    NAMES,
    TEXT_CELLS,
    TYPES,
    Event,
    Violation,
    cells_payload,
    frame_limit,
)

pytestmark = pytest.mark.anyio

# The ends of every range that the protocol has, one beyond them, and those of the encoding.
ENDS: Final = (0, 1, 2, 255, 65_535, 65_536)
GREAT: Final = tuple(2**bits + more for bits in (31, 32, 63) for more in (-1, 0, 1))
LAST: Final = (2**64 - 2, 2**64 - 1)
NEGATIVE: Final = (-1, -(2**31), -(2**63), -(2**64) + 1, -(2**64))
NUMBERS: Final = (*NEGATIVE, *ENDS, *GREAT, *LAST)

GREATEST_CREDIT: Final = 2**31 - 1
WINDOW: Final = 20_000
LARGEST_CODE: Final = 2**32 - 1
BYTES: Final = (*range(14), 31, 32, 63, 64, 65, 127, 128, 129, 254, 255)
TAKEN: Final = "taken"
PROTOCOL_ERROR: Final = "protocol-error"
MALFORMED: Final = "result 23"

Send = Callable[[ReferencePeer, int], object]
Verdict = Callable[[int], str]


def within(least: int, most: int, otherwise: str = PROTOCOL_ERROR) -> Verdict:
    """Taken from `least` to `most`."""
    return lambda number: TAKEN if least <= number <= most else otherwise


def only(*numbers: int) -> Verdict:
    """These are taken, no other is."""
    return lambda number: TAKEN if number in numbers else PROTOCOL_ERROR


def always(verdict: str) -> Verdict:
    return lambda number: verdict


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


class Refused(Exception):
    """A request was answered with a code other than 0."""


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


def framed(peer: ReferencePeer, length: int) -> None:
    """A frame of some length, none of it under a key."""
    peer.send_raw(length.to_bytes(4) + bytes(min(length, peer.channel.limit)))


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
        lambda p, n: p.send("Emit", 1, 0, name="x", data=1, format=n), always(TAKEN), ("format",)
    ),
    "Error code": Field(
        lambda p, n: p.send("Error", 1, 9, code=n, text="x"), always(TAKEN), ("code",)
    ),
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


def assert_calm(ours: Ours) -> None:
    """Nothing in the log but ends of connections: no traceback, no error of our own."""
    assert [line for line in ours.log if line.startswith(("ERROR", "CRITICAL"))] == []
    assert [line for line in ours.log if "internal-error" in line] == []


OUR_LIMITS: Final = {"max_payload": WINDOW, "stream_window": WINDOW}


@pytest.mark.parametrize("name", FIELDS)
async def test_a_number_on_an_open_connection(name: str) -> None:
    field = FIELDS[name]
    config = their_config(limits=OUR_LIMITS)
    async with with_bystander() as ours:
        ours.node.topic("news")
        found = {
            number: await ours.meet(lambda p, n=number: outcome(p, field, n), config=config)  # type: ignore[misc]  # mypy infers no default
            for number in field.numbers
        }
        wrong = {n: seen for n, seen in found.items() if not agrees(field.verdict(n), seen)}
        assert wrong == {}
        assert_calm(ours)


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("side", ["initiator", "responder"])
async def test_a_limit_in_hello_and_reply(name: str, side: Any) -> None:
    """What is too small is refused, what is too great counts as the greatest."""
    default, least, greatest = LIMITS[name]
    numbers = (*NUMBERS, least - 1, least, least + 1, greatest - 1, greatest, greatest + 1)
    event = "Hello" if side == "initiator" else "Reply"

    def act(peer: ReferencePeer) -> int | str:
        try:
            peer.handshake()
            acts.ping(peer)
        except (Violation, ConnectionLost):
            peer.channel.close()
            return PROTOCOL_ERROR
        (ours_of_it,) = [p for p in ours.node.peers if p.node_id == their_identity().id]
        acts.close(peer)
        agreed: int = getattr(ours_of_it.limits, name)
        return agreed

    async with with_bystander() as ours:
        for number in numbers:
            # What the reference itself goes by is in range, and no greater than what it states.
            config = their_config(limits={name: min(max(number, least), greatest)})
            wrong = Misbehaviour({event: having(**{name: number})})
            ours.log.clear()
            found = await ours.meet(act, side, config=config, wrong=wrong)
            assert found == (min(number, default) if number >= least else PROTOCOL_ERROR), number
            if number < least:
                await ours.until(lambda: PROTOCOL_ERROR in "".join(ours.log) or bool(ours.refusal))
            assert_calm(ours)


# Before the keys: raw events, of which our node knows nobody.

KEYS: Final = (*(number for number in NUMBERS if number >= 0), 3, 4, 5, 6)
U32: Final = (0, 1, 2, 3, 255, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)


def raw(at: int, size: int) -> Callable[[int], Change]:
    """A field of the head of a raw event."""
    return lambda n: lambda event: event[:at] + n.to_bytes(size) + event[at + size :]


@dataclass(frozen=True)
class RawField:
    """A number of Hello: how it gets there, and with which code it is rejected."""

    change: Callable[[int], Change]
    verdict: Verdict
    numbers: tuple[int, ...] = NUMBERS


def offered(number: int) -> Change:
    """An offer with one more entry; numbers that nobody knows mean nothing."""
    return lambda event: having(
        offer={**dict(sorted(cells_of(event)[CELLS["offer"]].items())), number: ["x"]}
    )(event)


HELLO_FIELDS: Final = {
    "version": RawField(
        lambda n: having(version=n),
        lambda n: TAKEN if n == 1 else PROTOCOL_ERROR if n < 0 else "unsupported-version",
    ),
    "a key of the offer": RawField(
        offered,
        lambda n: "no-common-algorithm" if 1 <= n <= 5 else TAKEN,
        KEYS,
    ),
    "stream": RawField(raw(0, 4), only(0), U32),
    "async id": RawField(raw(4, 2), only(0), (0, 1, 2, 255, 256, 65_534, 65_535)),
    "category": RawField(raw(6, 1), only(1), BYTES),
    "subcategory": RawField(raw(7, 1), only(1), BYTES),
}


@pytest.mark.parametrize("name", HELLO_FIELDS)
async def test_a_number_in_hello(name: str) -> None:
    field = HELLO_FIELDS[name]

    def act(peer: ReferencePeer) -> str:
        try:
            peer.handshake()
            acts.ping(peer)
        except Violation as violation:
            return violation.code  # of the Reject
        peer.channel.close()
        return TAKEN

    async with with_bystander() as ours:
        for number in field.numbers:
            wrong = Misbehaviour({"Hello": field.change(number)})
            assert await ours.meet(act, wrong=wrong) == field.verdict(number), number
        assert_calm(ours)


def suited(number: int) -> Change:
    """A suite with one more entry."""
    return lambda event: having(suite={**cells_of(event)[CELLS["suite"]], number: "x"})(event)


def retried(number: int) -> Change:
    """A Retry whose one entry has some key."""
    payload = cells_payload(suite={number: "x25519-mlkem768"})
    return instead(Event(0, 0, *TYPES["Retry"], payload).raw)


# In place of a Reply; 'its code' is the number itself.
REPLY_FIELDS: Final = {
    "version": RawField(
        lambda n: having(version=n),
        lambda n: TAKEN if n == 1 else PROTOCOL_ERROR if n < 0 else "unsupported-version",
    ),
    "a key of the suite": RawField(
        suited, lambda n: PROTOCOL_ERROR if 1 <= n <= 5 else TAKEN, KEYS
    ),
    "a key of Retry": RawField(retried, always(PROTOCOL_ERROR), KEYS),
    "the code of Reject": RawField(
        lambda n: instead(Event(0, 0, *TYPES["Reject"], cells_payload(code=n)).raw),
        lambda n: "its code" if 0 <= n <= LARGEST_CODE else PROTOCOL_ERROR,
    ),
    "stream": RawField(raw(0, 4), only(0), U32),
    "async id": RawField(raw(4, 2), only(0), (0, 1, 2, 255, 256, 65_534, 65_535)),
    "category": RawField(raw(6, 1), only(1), BYTES),
    "subcategory": RawField(raw(7, 1), only(2), BYTES),
}


@pytest.mark.parametrize("name", REPLY_FIELDS)
async def test_a_number_in_reply(name: str) -> None:
    field = REPLY_FIELDS[name]

    def act(peer: ReferencePeer) -> None:
        try:
            peer.handshake()
            acts.ping(peer)
        except ConnectionLost:
            return

    async with with_bystander() as ours:
        for number in field.numbers:
            ours.refusal = None
            await ours.meet(act, "responder", wrong=Misbehaviour({"Reply": field.change(number)}))
            verdict = field.verdict(number)
            code = number if verdict == "its code" else CODES.get(verdict)
            assert refusal_code(ours) == code, number
        assert_calm(ours)


def refusal_code(ours: Ours) -> int | None:
    """How our dial ended; None for well."""
    if ours.refusal is None:
        return None
    assert isinstance(ours.refusal, HandshakeError)
    return ours.refusal.code


LENGTHS: Final = (0, 1, 2, 3, 4, 7, 8, 9, 255, 16_383, 16_384, 16_385, 65_536, 2**31, 2**32 - 1)


async def test_the_length_of_the_first_frame() -> None:
    def first(length: int) -> Callable[[ReferencePeer], tuple[str, int]]:
        def act(peer: ReferencePeer) -> tuple[str, int]:
            framed(peer, length)
            kind, cells = handshake_cells(peer.channel.receive_frame())
            assert kind == TYPES["Reject"]
            return NAMES[cells[CELLS["code"]]], length

        return act

    async with with_bystander() as ours:
        for length in LENGTHS:
            code = PROTOCOL_ERROR if length <= 16_384 else "frame-too-large"
            assert await ours.meet(first(length)) == (code, length)
        assert_calm(ours)


# In answers to what our node asked.


async def test_a_number_in_the_answer_to_our_call() -> None:
    """A code that fits 32 bits is the caller's to read, all else is malformed."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for number in NUMBERS:
            call = acts.wait_for(peer, lambda event: event.type == TYPES["Call"])
            peer.send("Result", 1, call.async_id, code=number)
        acts.serve(peer)

    async def application(peer: Peer) -> None:
        for number in NUMBERS:
            code = await refused_with(peer.call("x", timeout=None))
            assert code == (number if 0 <= number <= LARGEST_CODE else 23)
        await peer.close()

    async with with_bystander() as ours:
        await ours.meet(act, "responder", application=application)
        assert_calm(ours)


async def refused_with(call: Awaitable[object]) -> int:
    """The code of an answer."""
    try:
        await call
    except CallRefused as refused:
        return refused.code
    return 0


async def test_a_number_for_the_stream_of_our_subscription() -> None:
    """Only the stream that was opened for it will do, and the connection goes on."""

    def answers(number: int) -> Callable[[ReferencePeer], None]:
        def act(peer: ReferencePeer) -> None:
            peer.handshake()
            event = asked(peer)
            assert acts.open_stream(peer, "topic:news") == 2
            peer.send("Result", 1, event.async_id, code=0, stream=number)
            acts.serve(peer)

        return act

    async def application(peer: Peer) -> int:
        code = await refused_with(peer.subscribe("news").__aenter__())
        assert await refused_with(peer.call("x")) == 1  # no such topic, says the reference
        await peer.close()
        return code

    async with with_bystander() as ours:
        for number in (*NUMBERS, 3, 4, 5):
            _, code = await read(ours, answers(number), application)
            assert code == (0 if number == 2 else 23), number
        assert_calm(ours)


async def test_the_number_of_notes_that_were_lost() -> None:
    """A publisher's word in a header or in a Reset's text, of any size."""
    digits = [*(str(number) for number in NUMBERS), "9" * 20, "9" * 21, "9" * 900, "٣", "²", ""]

    def says(text: str) -> Callable[[ReferencePeer], None]:
        def act(peer: ReferencePeer) -> None:
            peer.handshake()
            stream = accept(peer)
            for number in NUMBERS:
                peer.send("Notify", stream, 0, data=number, headers={"parley.dropped": number})
            text_of_it = f"{text} notes were not read in time"
            peer.send("Reset", 0, stream=stream, code=33, text=text_of_it)
            acts.serve(peer)

        return act

    async def application(peer: Peer) -> tuple[list[object], int]:
        async with peer.subscribe("news") as subscription:
            notes: list[object] = [await anext(subscription) for _ in NUMBERS]
            with pytest.raises(StreamResetError):
                await anext(subscription)
        await peer.close()
        return notes, subscription.dropped

    async with with_bystander() as ours:
        for text in digits:
            _, (notes, dropped) = await read(ours, says(text), application)
            assert notes == list(NUMBERS)
            told = text.isascii() and text.isdigit() and len(text) <= 20
            assert dropped == max(NUMBERS[-1], int(text) if told else 0)
        assert_calm(ours)


def test_every_unsigned_cell_is_here() -> None:
    """A new cell that is a number gets its place in these tables."""
    others = {*TEXT_CELLS, *BYTES_CELLS, *ARRAY_CELLS, *MAP_CELLS}
    others |= {CELLS["plaintext"], CELLS["data"]}
    unsigned = {name for name, number in CELLS.items() if number not in others}
    covered = {cell for field in FIELDS.values() for cell in field.cells} | set(LIMITS)
    assert unsigned == covered | {"version"}
