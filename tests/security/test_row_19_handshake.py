"""Row 19: numbers before the keys, in raw events that anybody could have sent: Hello, Reply,
Retry, Reject, and the length of the first frame.

What is too small is refused, what is too great counts as the greatest; our node serves a
bystander as before. Numbers under the keys: test_row_19_numbers.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from parley import HandshakeError, NodeConfig
from tests.interop.meeting import (
    Ours,
    their_config,
    their_identity,
    with_bystander,
)
from tests.interop.test_handshake_faults import cells_of, having, instead
from tests.reference import acts
from tests.reference.channel import ConnectionLost
from tests.reference.establish import Change, Misbehaviour
from tests.reference.handshake import LIMITS, handshake_cells
from tests.reference.peer import ReferencePeer
from tests.reference.wire import (
    CELLS,
    CODES,
    NAMES,
    TYPES,
    Event,
    Violation,
    cells_payload,
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
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("side", ["initiator", "responder"])
async def test_a_limit_in_hello_and_reply(name: str, side: Any) -> None:
    """What is too small is refused, what is too great counts as the greatest."""
    _, least, greatest = LIMITS[name]
    stated = getattr(NodeConfig().limits, name)
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
            assert found == (min(number, stated) if number >= least else PROTOCOL_ERROR), number
            if number < least:
                await ours.until(lambda: PROTOCOL_ERROR in "".join(ours.log) or bool(ours.refusal))
            assert_calm(ours)


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


def head(subcategory: int) -> dict[str, RawField]:
    """The numbers in the head of a Hello or Reply."""
    return {
        "stream": RawField(raw(0, 4), only(0), U32),
        "async id": RawField(raw(4, 2), only(0), (0, 1, 2, 255, 256, 65_534, 65_535)),
        "category": RawField(raw(6, 1), only(1), BYTES),
        "subcategory": RawField(raw(7, 1), only(subcategory), BYTES),
    }


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
    "resume ms": RawField(
        lambda n: having(resume_ms=n), lambda n: TAKEN if n >= 0 else PROTOCOL_ERROR
    ),
    **head(1),
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
            config = their_config(resume_ms=600_000)
            found = await ours.meet(act, config=config, wrong=wrong)
            assert found == field.verdict(number), number
        assert_calm(ours)


@pytest.mark.parametrize(("cell", "least", "most"), [("attempt", 1, 2**32 - 1), ("received", 0, 0)])
async def test_a_number_in_resume(cell: str, least: int, most: int) -> None:
    """Of a session that nobody knows; as a position every number may be."""
    cells = {"tag": bytes(16), "attempt": 1, "received": 0, "mac_of_resume": bytes(32)}

    def act(peer: ReferencePeer, number: int) -> str:
        payload = cells_payload(**{**cells, cell: number})
        peer.send_frame(Event(0, 0, *TYPES["Resume"], payload).raw)
        kind, answer = handshake_cells(peer.channel.receive_frame())
        assert kind == TYPES["Reject"]
        return NAMES[answer[CELLS["code"]]]

    async with with_bystander() as ours:
        for number in NUMBERS:
            found = await ours.meet(lambda p, n=number: act(p, n))  # type: ignore[misc]  # mypy infers no default
            right = least <= number <= (most or 2**64 - 1)
            assert found == ("unknown-session" if right else PROTOCOL_ERROR), number
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
    **head(2),
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
