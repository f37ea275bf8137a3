"""Vectors for 2/6 Batch (section 8): valid and invalid batches, and the effects of their events.

The exchanges have the form of rules.json, under its limits.
"""

from typing import Any

from tests.reference import wire
from tests.reference.batches import MOST_BYTES, batch_of, batched, inside
from tests.reference.vectors_rules import BYTES, OPEN, Step, local, outcome, raw, remote
from tests.reference.vectors_wire import shown
from tests.reference.wire import RESET_CODES, TYPES, Event, Violation

Vector = dict[str, Any]
BATCH = TYPES["Batch"]
CALL = Event(1, 7, *TYPES["Call"], wire.cells_payload(topic="parley.echo", data="hello"))
RESULT = Event(1, 7, *TYPES["Result"], wire.cells_payload(code=0, data=b"hello"))
NOTE = Event(1, 0, *TYPES["Notify"], wire.cells_payload(data=1))
BARE = Event(1, 0, 64, 1)
TWO = inside(CALL) + inside(NOTE)


def of_size(size: int, stream: int = 1) -> Event:
    """An application's event with so many bytes of payload."""
    return Event(stream, 0, 64, 1, bytes(size - 1) + b"x")


# Batches of stream 1.
RIGHT: dict[str, list[Event]] = {
    "the example of section 8": [RESULT, Event(1, 8, *TYPES["Result"], b"\xa1\x10\x00")],
    "a request, an answer and a note": [CALL, RESULT, NOTE],
    "the same event twice": [NOTE, NOTE],
    "two requests under one id, which is their own matter": [CALL, CALL],
    "events without payload": [BARE, BARE],
    "the greatest fields": [Event(1, 65_535, 255, 255, b"\xff")] * 2,
    "the least category": [Event(1, 0, 3, 1, b"\xa0"), BARE],
    "a reserved category and an unknown subcategory": [Event(1, 0, 9, 1, b"x"), Event(1, 0, 3, 99)],
    "payloads that look like events of a Batch": [Event(1, 0, 64, 1, TWO), of_size(2)],
    "256 events": [BARE] * 256,
}
_WHY = "section 8: 2 to 256 whole events of categories from 3 up, and nothing else"
WRONG: dict[str, bytes] = {
    "no payload": b"\x00",
    "one event": inside(CALL),
    "257 events": inside(BARE) * 257,
    "a byte more": TWO + b"\x00",
    "a byte less": TWO[:-1],
    "a head alone behind two events": TWO + inside(BARE)[:8],
    "half a head behind two events": TWO + inside(BARE)[:4],
    "a length of 0 at the end": TWO + inside(BARE, 0)[:8],
    "a length of 0, and a byte more": TWO + inside(BARE, 0),
    "a length of one more than there is": TWO + inside(NOTE, len(NOTE.payload) + 1),
    "a length of one less than there is": TWO + inside(NOTE, len(NOTE.payload) - 1),
    "a length of 4 GiB": TWO + inside(NOTE, 2**32 - 1),
    "a length above 2^31": inside(NOTE, 2**31 + len(NOTE.payload)) + inside(NOTE),
    "an event of category 0": TWO + inside(Event(1, 0, 0, 1, b"x")),
    "an event of subcategory 0": TWO + inside(Event(1, 0, 64, 0, b"x")),
    "a Ping": TWO + inside(Event(1, 1, *TYPES["Ping"])),
    "a Close": TWO + inside(Event(1, 0, *TYPES["Close"], b"\xa1\x10\x00")),
    "an Open": TWO + inside(Event(1, 0, *TYPES["Open"], wire.cells_payload(label="x"))),
    "a Finish": TWO + inside(Event(1, 0, *TYPES["Finish"])),
    "Data": TWO + inside(Event(1, 0, *TYPES["Data"], b"some bytes")),
    "a Batch": TWO + inside(Event(1, 0, *BATCH, TWO)),
    "the first event is wrong": inside(Event(1, 0, *TYPES["Ping"])) + TWO,
}
# By name: the greatest payload that was agreed, and how long the payloads inside are.
SIZES: dict[str, tuple[int, list[int], str]] = {
    "exactly 32,768 bytes": (1 << 20, [MOST_BYTES - 17, 1], "accepted"),
    "32,769 bytes": (1 << 20, [MOST_BYTES - 16, 1], "fails: protocol-error"),
    "exactly max_payload": (1_024, [500, 508], "accepted"),
    "a byte more than max_payload": (1_024, [500, 509], "fails: frame-too-large"),
}


def batch(*events: Event) -> Step:
    """A step that the node under test receives."""
    made = batch_of(events)
    return {**raw(made.stream, 0, *BATCH, made.payload), "event": "Batch"}


def sized(*sizes: int) -> Step:
    """A Batch on stream 2 of events of such sizes."""
    return batch(*(of_size(size, 2) for size in sizes))


SMALL = sized(1, 1)
RESET = local("Reset", 0, stream=2, code=RESET_CODES["cancelled"])
# On stream 2 the other side has 1,024 bytes of credit.
RULES: dict[str, tuple[list[Step], str]] = {
    "on stream 1, which has no credit": ([batch(BARE, of_size(3_000))], "accepted"),
    "on a stream that is open": ([OPEN, SMALL], "accepted"),
    "costs of the events alone, so that a byte of credit is left": (
        [OPEN, sized(448, 447), remote("Data", 2, **BYTES)],
        "accepted",
    ),
    "an event may go below no credit once, as outside": ([OPEN, sized(100, 900)], "accepted"),
    "nothing may come behind an event that went below": (
        [OPEN, sized(100, 900), remote("Data", 2, **BYTES)],
        "fails: protocol-error",
    ),
    "an event at no credit": ([OPEN, sized(900, 900, 1)], "fails: protocol-error"),
    "credit of exactly zero is no credit": ([OPEN, sized(960, 1)], "fails: protocol-error"),
    "behind an event that used up the credit": (
        [OPEN, remote("Data", 2, bytes=bytes(960)), SMALL],
        "fails: protocol-error",
    ),
    "Finish behind it": ([OPEN, sized(480, 416), remote("Finish", 2)], "accepted"),
    "behind Finish": ([OPEN, remote("Finish", 2), SMALL], "fails: protocol-error"),
    "behind the sender's own Reset": (
        [OPEN, remote("Reset", 0, stream=2, code=32), SMALL],
        "fails: protocol-error",
    ),
    "on a stream never opened": ([SMALL], "fails: protocol-error"),
    "on stream 0": ([raw(0, 0, *BATCH, TWO)], "fails: protocol-error"),
    "with an async id": ([raw(1, 7, *BATCH, TWO)], "fails: protocol-error"),
    "what crosses one's own Reset is dropped": ([OPEN, RESET, SMALL], "ignored"),
    "what crosses one's own Reset uses up credit": (
        [OPEN, RESET, sized(900, 900), SMALL],
        "fails: protocol-error",
    ),
    "what crosses one's own Reset must be a Batch": (
        [OPEN, RESET, raw(2, 0, *BATCH, inside(BARE))],
        "fails: protocol-error",
    ),
    "a malformed event that no one waits for": (
        [batch(Event(1, 9, *TYPES["Result"], b"\xff"), BARE)],
        "ignored",
    ),
}


def batch_vectors() -> dict[str, Any]:
    """batch.json."""
    vectors: list[Vector] = []
    for name, events in RIGHT.items():
        made = batch_of(events)
        batched(made)
        vectors.append(
            {
                "name": name,
                "kind": "batch",
                "raw_event": made.raw.hex(),
                "expected": [shown(event) for event in events],
            }
        )
    for name, payload in WRONG.items():
        made = Event(1, 0, *BATCH, payload)
        vectors.append({"name": name, "kind": "batch", "raw_event": made.raw.hex(), **_fails(made)})
    for name, (limit, sizes, result) in SIZES.items():
        title = {"name": name, "kind": "sizes", "max_payload": limit, "sizes": sizes}
        vectors.append(title | outcome(name, result))
    for name, (steps, result) in RULES.items():
        title = {"name": f"rule: {name}", "kind": "rule", "steps": steps}
        vectors.append(title | outcome(name, result))
    return {
        "about": "Batches on stream 1 as raw events, and exchanges under the limits of rules.json.",
        "section": "8",
        "vectors": vectors,
    }


def _fails(made: Event) -> Vector:
    """Return the reason why bytes are not a Batch. Raises ValueError if they are one."""
    try:
        batched(made)
    except Violation as violation:
        return {"fails": violation.code, "why": _WHY}
    raise ValueError("this is a Batch")
