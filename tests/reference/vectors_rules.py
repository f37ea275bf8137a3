"""Vectors for the rules of an open connection: async ids, streams, windows, epochs.

A vector is a short exchange as one node sees it, step by step; it tests the last step's outcome.
Payloads are written by cell names.
"""

from typing import Any

from tests.reference import wire
from tests.reference.wire import TYPES, Event

Vector = dict[str, Any]
Step = dict[str, Any]
# The outcome of an exchange: a failure, a word for 'nothing is sent', or the events that are sent.
Outcome = str | list[Step]


def step(side: str, name: str, stream: int, async_id: int = 0, /, **cells: Any) -> Step:
    """One event: `side` is 'remote' (the node under test receives it) or 'local' (it sends it)."""
    data: bytes | None = cells.pop("bytes", None)
    if data is None:
        data = wire.cells_payload(**cells) if cells else b""
    event = Event(stream, async_id, *TYPES[name], data)
    return {
        "from": side,
        "event": name,
        "stream": stream,
        "async_id": async_id,
        "raw_event": event.raw.hex(),
    }


def remote(name: str, stream: int, async_id: int = 0, /, **cells: Any) -> Step:
    """A step that the node under test receives."""
    return step("remote", name, stream, async_id, **cells)


def local(name: str, stream: int, async_id: int = 0, /, **cells: Any) -> Step:
    """A step that the node under test sends."""
    return step("local", name, stream, async_id, **cells)


def raw(stream: int, async_id: int, category: int, subcategory: int, payload: bytes = b"") -> Step:
    """A received event of any type."""
    event = Event(stream, async_id, category, subcategory, payload)
    return {
        "from": "remote",
        "event": f"{category}/{subcategory}",
        "stream": stream,
        "async_id": async_id,
        "raw_event": event.raw.hex(),
    }


def sent(name: str, stream: int, async_id: int = 0, /, **cells: Any) -> Step:
    """An event that the node under test sends; of its payload `cells` alone are compared."""
    category, subcategory = TYPES[name]
    shown = {"event": name, "category": category, "subcategory": subcategory}
    place = {"stream": stream, "async_id": async_id}
    return {**shown, **place, **({"cells": cells} if cells else {})}


def outcome(name: str, result: Outcome) -> Vector:
    """Return the fields of a vector that describe its outcome."""
    if isinstance(result, list):
        return {"expected": {"sent": result}}
    if result.startswith("fails: "):
        return {"fails": result.removeprefix("fails: "), "why": name}
    return {"expected": {"sent": [], "says": result}}


def again(one: Step, times: int) -> Step:
    """The same event so many times, at one moment."""
    return {**one, "times": times}


def later(one: Step, seconds: int) -> Step:
    """An event before which so many seconds pass in which the remote node sends no other."""
    return {**one, "after": seconds}


def updates(count: int) -> list[Step]:
    """Plain KeyUpdates at one moment, to the epochs from 1 on."""
    return [remote("KeyUpdate", 0, epoch=epoch) for epoch in range(1, count + 1)]


OPEN = remote("Open", 2, label="app/x")
BYTES = {"bytes": b"some bytes"}
# A stream that is gone: its Open is reason for two events of stream 0, of which this is one.
GONE = remote("Reset", 0, stream=2, code=32)
LATE_WINDOW = remote("Window", 0, stream=2, credit=1)
GOOD_OFFER = remote("RekeyOffer", 0, share=b"\x09" + bytes(31))
# A call whose answer may be streamed, with the agreed window of 1,024 bytes, and what answers it.
STREAMED_CALL = {**local("Call", 1, 7, topic="t"), "streamed": True}
GIVE_UP = local("Cancel", 1, request=7)
CHUNK = remote("Chunk", 1, 7, data=b"x" * 500)
# The node under test is the initiator: the remote side's streams are even.
RULES: dict[str, tuple[str, list[Step], Outcome]] = {
    "ping": ("2", [remote("Ping", 0, 9)], [sent("Pong", 0, 9)]),
    "a request is answered once": (
        "2",
        [remote("Call", 1, 7, topic="parley.echo", data=1)],
        [sent("Result", 1, 7, code=0, data=1)],
    ),
    "a request that wants no answer": (
        "2",
        [remote("Call", 1, 0, topic="parley.echo", data=1)],
        "nothing is sent",
    ),
    "the same id on both sides": (
        "2",
        [local("Call", 1, 7, topic="t"), remote("Call", 1, 7, topic="parley.echo")],
        [sent("Result", 1, 7, code=0)],
    ),
    "the same id on two streams": (
        "2",
        [
            OPEN,
            remote("Call", 1, 7, topic="parley.echo"),
            remote("Call", 2, 7, topic="parley.echo"),
        ],
        [sent("Result", 2, 7, code=0)],
    ),
    "an answer for an unknown id": ("2", [remote("Result", 1, 9, code=0)], "ignored"),
    "a second answer": (
        "2",
        [
            local("Call", 1, 7, topic="t"),
            remote("Result", 1, 7, code=0),
            remote("Result", 1, 7, code=0),
        ],
        "ignored",
    ),
    "an answer on another stream": (
        "2",
        [OPEN, local("Call", 1, 7, topic="t"), remote("Result", 2, 7, code=0)],
        "ignored",
    ),
    "Cancel of an unknown id": ("2", [remote("Cancel", 1, request=9)], "ignored"),
    "Cancel of a waiting request": (
        "2",
        [remote("Call", 1, 7, topic="a handler that waits"), remote("Cancel", 1, request=7)],
        [sent("Result", 1, 7)],
    ),
    "a cancelled id is kept until its answer": (
        "2",
        [
            local("Call", 1, 7, topic="t"),
            local("Cancel", 1, request=7),
            local("Call", 1, 7, topic="t"),
        ],
        "fails: local",
    ),
    "an id is free after its answer": (
        "2",
        [
            local("Call", 1, 7, topic="t"),
            remote("Result", 1, 7, code=0),
            local("Call", 1, 7, topic="t"),
        ],
        [sent("Call", 1, 7, topic="t")],
    ),
    "an id in use cannot be used again": (
        "2",
        [local("Call", 1, 7, topic="t"), local("Call", 1, 7, topic="t")],
        "fails: local",
    ),
    "an unknown topic": (
        "9",
        [remote("Call", 1, 7, topic="no such")],
        [sent("Result", 1, 7, code=1)],
    ),
    "a malformed Call": ("2", [raw(1, 7, 3, 1, b"\xa0")], [sent("Result", 1, 7, code=23)]),
    "a malformed Call that wants no answer": ("2", [raw(1, 0, 3, 1, b"\xa0")], "ignored"),
    "Unsubscribe without a subscription": (
        "9",
        [remote("Unsubscribe", 1, 7, topic="news")],
        [sent("Result", 1, 7, code=2)],
    ),
    "Unsubscribe of a topic that is not published": (
        "9",
        [remote("Unsubscribe", 1, 7, topic="t")],
        [sent("Result", 1, 7, code=1)],
    ),
    "Subscribe, Subscribe, Unsubscribe, Unsubscribe while the first is being decided": (
        "9",
        [
            remote("Subscribe", 1, 7, topic="news"),
            remote("Subscribe", 1, 8, topic="news"),
            remote("Unsubscribe", 1, 9, topic="news"),
            remote("Unsubscribe", 1, 10, topic="news"),
        ],
        [
            sent("Open", 3, label="topic:news"),
            sent("Result", 1, 7, code=0, stream=3),
            sent("Result", 1, 8, code=2),
            sent("Result", 1, 9, code=0),
            sent("Finish", 3),
            sent("Result", 1, 10, code=2),
        ],
    ),
    "Unsubscribe while a Subscribe is being decided that will be rejected": (
        "9",
        [
            remote("Subscribe", 1, 7, topic="rejected"),
            remote("Unsubscribe", 1, 8, topic="rejected"),
        ],
        [sent("Result", 1, 7, code=3), sent("Result", 1, 8, code=2)],
    ),
    "Unsubscribe under the id of the Subscribe that is being decided": (
        "9",
        [remote("Subscribe", 1, 7, topic="news"), remote("Unsubscribe", 1, 7, topic="news")],
        "fails: protocol-error",
    ),
    "Subscribe under the id of an Unsubscribe that waits while one is being decided": (
        "9",
        [
            remote("Subscribe", 1, 7, topic="news"),
            remote("Unsubscribe", 1, 8, topic="news"),
            remote("Subscribe", 1, 8, topic="news"),
        ],
        "fails: protocol-error",
    ),
    "an application category without a handler": ("2", [raw(1, 7, 99, 1, b"x")], "ignored"),
    "a reserved category": ("2", [raw(1, 7, 9, 1, b"x")], "ignored"),
    "an unknown subcategory of category 3": ("2", [raw(1, 0, 3, 9, b"\xa0")], "ignored"),
    "an unknown subcategory with an async id": ("2", [raw(1, 7, 3, 9, b"\xa0")], "ignored"),
    "an unknown subcategory of category 4 with an async id": (
        "2",
        [raw(1, 7, 4, 9, b"\xa0")],
        "ignored",
    ),
    "an unknown subcategory of category 5 with an async id": (
        "2",
        [raw(1, 7, 5, 9, b"\xa0")],
        "ignored",
    ),
    "a request under an id whose event was ignored": (
        "2",
        [raw(1, 7, 3, 9, b"\xa0"), remote("Call", 1, 7, topic="parley.echo")],
        [sent("Result", 1, 7, code=0)],
    ),
    "an unknown subcategory of category 1": ("2", [raw(0, 0, 1, 13)], "fails: protocol-error"),
    "an unknown subcategory of category 2": ("2", [raw(0, 0, 2, 7)], "fails: protocol-error"),
    "a Batch of one byte": ("8", [OPEN, raw(2, 0, 2, 6, b"x")], "fails: protocol-error"),
    "Hello after the handshake": ("2", [raw(0, 0, 1, 1, b"\xa0")], "fails: protocol-error"),
    "Reject after the handshake": (
        "5",
        [remote("Reject", 0, code=2, text="x")],
        "fails: protocol-error",
    ),
    "Ping on stream 1": ("2", [remote("Ping", 1, 9)], "fails: protocol-error"),
    "Close on stream 1": ("2", [remote("Close", 1, code=0)], "fails: protocol-error"),
    "Call on stream 0": ("8", [remote("Call", 0, 7, topic="t")], "fails: protocol-error"),
    "an application's event on stream 0": ("8", [raw(0, 0, 64, 1, b"x")], "fails: protocol-error"),
    "Data on stream 0": ("8", [remote("Data", 0, **BYTES)], "fails: protocol-error"),
    "Open of stream 0": ("8", [remote("Open", 0, label="x")], "fails: protocol-error"),
    "Open of stream 1": ("8", [remote("Open", 1, label="x")], "fails: protocol-error"),
    "Finish of stream 0": ("8", [remote("Finish", 0)], "fails: protocol-error"),
    "Finish of stream 1": ("8", [remote("Finish", 1)], "fails: protocol-error"),
    "Reset of stream 1": ("8", [remote("Reset", 0, stream=1, code=32)], "fails: protocol-error"),
    "Reset of stream 0": ("8", [remote("Reset", 0, stream=0, code=32)], "fails: protocol-error"),
    "Window off stream 0": (
        "8",
        [OPEN, remote("Window", 2, stream=2, credit=1)],
        "fails: protocol-error",
    ),
    "Reset off stream 0": (
        "8",
        [OPEN, remote("Reset", 2, stream=2, code=32)],
        "fails: protocol-error",
    ),
    "a stream: Open, Data, Finish": (
        "8",
        [OPEN, remote("Data", 2, **BYTES), remote("Finish", 2)],
        "accepted",
    ),
    "the first even stream, then a later one": (
        "8",
        [OPEN, remote("Open", 8, label="x")],
        "accepted",
    ),
    "Open of an odd stream by the responder": (
        "8",
        [remote("Open", 3, label="x")],
        "fails: protocol-error",
    ),
    "Open of the same stream twice": ("8", [OPEN, OPEN], "fails: protocol-error"),
    "Open of a lesser id": (
        "8",
        [remote("Open", 8, label="x"), remote("Open", 6, label="x")],
        "fails: protocol-error",
    ),
    "Data on a stream never opened": ("8", [remote("Data", 2, **BYTES)], "fails: protocol-error"),
    "Finish on a stream never opened": ("8", [remote("Finish", 2)], "fails: protocol-error"),
    "Data after Finish": (
        "8",
        [OPEN, remote("Finish", 2), remote("Data", 2, **BYTES)],
        "fails: protocol-error",
    ),
    "Finish after Finish": (
        "8",
        [OPEN, remote("Finish", 2), remote("Finish", 2)],
        "fails: protocol-error",
    ),
    "Data after the sender's own Reset": (
        "8",
        [OPEN, remote("Reset", 0, stream=2, code=32), remote("Data", 2, **BYTES)],
        "fails: protocol-error",
    ),
    "Reset is answered with Reset": (
        "8",
        [OPEN, remote("Reset", 0, stream=2, code=32)],
        [sent("Reset", 0, stream=2, code=32)],
    ),
    "Reset after one's own Finish is not answered": (
        "8",
        [OPEN, local("Finish", 2), remote("Reset", 0, stream=2, code=32)],
        "nothing is sent",
    ),
    "Data that crosses one's own Reset is dropped": (
        "8",
        [OPEN, local("Reset", 0, stream=2, code=32), remote("Data", 2, **BYTES)],
        "ignored",
    ),
    "Window for a stream that is gone": (
        "8",
        [OPEN, remote("Finish", 2), local("Finish", 2), remote("Window", 0, stream=2, credit=1)],
        "ignored",
    ),
    "Reset for a stream that is gone": (
        "8",
        [OPEN, remote("Finish", 2), local("Finish", 2), remote("Reset", 0, stream=2, code=32)],
        "ignored",
    ),
    "more streams than max_streams (2)": (
        "8",
        [OPEN, remote("Open", 4, label="x"), remote("Open", 6, label="x")],
        "fails: too-many-streams",
    ),
    "a stream that is gone counts no more (max_streams 2)": (
        "8",
        [
            OPEN,
            remote("Open", 4, label="x"),
            remote("Finish", 2),
            local("Finish", 2),
            remote("Open", 6, label="x"),
        ],
        "accepted",
    ),
    "credit may go below zero once": (
        "8",
        [OPEN, remote("Data", 2, bytes=bytes(900)), remote("Data", 2, bytes=bytes(900))],
        "accepted",
    ),
    "an event at no credit": (
        "8",
        [OPEN, *[remote("Data", 2, bytes=bytes(900))] * 3],
        "fails: protocol-error",
    ),
    "credit of exactly zero is no credit": (
        "8",
        [OPEN, remote("Data", 2, bytes=bytes(960)), remote("Data", 2, bytes=b"x")],
        "fails: protocol-error",
    ),
    "Finish and Open cost nothing": (
        "8",
        [OPEN, remote("Data", 2, bytes=bytes(960)), remote("Finish", 2)],
        "accepted",
    ),
    "Window that lifts the credit above 2^31-1": (
        "8",
        [OPEN, remote("Window", 0, stream=2, credit=2**31 - 1)],
        "fails: protocol-error",
    ),
    "Window up to exactly 2^31-1": (
        "8",
        [OPEN, remote("Window", 0, stream=2, credit=2**31 - 1 - 1_024)],
        "accepted",
    ),
    "Open with window 0": ("8", [remote("Open", 2, label="x", window=0)], "fails: protocol-error"),
    "Open with window 2^31": (
        "8",
        [remote("Open", 2, label="x", window=2**31)],
        "fails: protocol-error",
    ),
    "a label topic: that answers no Subscribe": (
        "9",
        [remote("Open", 2, label="topic:news")],
        [sent("Reset", 0, stream=2, code=35)],
    ),
    "a subscriber answers Finish with Finish": (
        "9",
        [
            local("Subscribe", 1, 7, topic="news"),
            remote("Open", 2, label="topic:news"),
            remote("Result", 1, 7, code=0, stream=2),
            local("Unsubscribe", 1, 8, topic="news"),
            remote("Result", 1, 8, code=0),
            remote("Finish", 2),
        ],
        [sent("Finish", 2)],
    ),
    "a payload of 4,097 bytes on stream 0": (
        "2",
        [remote("Close", 0, code=0, text="x" * 4_090)],
        "fails: frame-too-large",
    ),
    "KeyUpdate to epoch 1": ("6", [remote("KeyUpdate", 0, epoch=1)], "accepted"),
    "KeyUpdate to a wrong epoch": ("6", [remote("KeyUpdate", 0, epoch=2)], "fails: protocol-error"),
    "KeyUpdate to epoch 0": ("6", [remote("KeyUpdate", 0, epoch=0)], "fails: protocol-error"),
    "KeyUpdate twice with the same epoch": (
        "6",
        [remote("KeyUpdate", 0, epoch=1)] * 2,
        "fails: protocol-error",
    ),
    "KeyUpdate of a rekey that was not": (
        "6",
        [remote("KeyUpdate", 0, epoch=1, rekey=1)],
        "fails: protocol-error",
    ),
    "an unasked RekeyAnswer": (
        "6",
        [remote("RekeyAnswer", 0, share=bytes(31) + b"\x09")],
        "fails: protocol-error",
    ),
    "RekeyOffer with a share of 31 bytes": (
        "6",
        [remote("RekeyOffer", 0, share=b"\x09" + bytes(30))],
        "fails: protocol-error",
    ),
    "RekeyOffer with a share whose shared secret would be zero": (
        "6",
        [remote("RekeyOffer", 0, share=bytes(32))],
        "fails: protocol-error",
    ),
    "Window of 0": ("8", [OPEN, remote("Window", 0, stream=2, credit=0)], "accepted"),
    "a Window of 0 for a stream that is gone": (
        "8",
        [OPEN, remote("Finish", 2), local("Finish", 2), remote("Window", 0, stream=2, credit=0)],
        "ignored",
    ),
    "a second RekeyOffer before the first is over": (
        "6",
        [remote("RekeyOffer", 0, share=b"\x09" + bytes(31))] * 2,
        "fails: protocol-error",
    ),
    "Pong that was not asked for": ("2", [remote("Pong", 0, 9)], "ignored"),
    "Seal": ("6", [remote("Seal", 0)], "accepted"),
    "64 KeyUpdates at once": ("6", updates(64), "accepted"),
    "65 KeyUpdates at once": ("6", updates(65), "fails: overloaded"),
    "64 KeyUpdates, and one a second later": (
        "6",
        [*updates(64), later(remote("KeyUpdate", 0, epoch=65), 1)],
        "accepted",
    ),
    "64 Seals that seal nothing": ("6", [again(remote("Seal", 0), 64)], "accepted"),
    "65 Seals that seal nothing": (
        "6",
        [again(remote("Seal", 0), 64), remote("Seal", 0)],
        "fails: overloaded",
    ),
    "64 Pongs that were not asked for": ("9", [again(remote("Pong", 0, 9), 64)], "ignored"),
    "65 Pongs that were not asked for": (
        "9",
        [again(remote("Pong", 0, 9), 64), remote("Pong", 0, 9)],
        "fails: overloaded",
    ),
    "Windows without a reason: 64": (
        "8",
        [OPEN, GONE, again(LATE_WINDOW, 65)],
        "ignored",
    ),
    "Windows without a reason: 65": (
        "8",
        [OPEN, GONE, again(LATE_WINDOW, 65), LATE_WINDOW],
        "fails: overloaded",
    ),
    "Resets without a reason: 65": (
        "8",
        [OPEN, GONE, again(GONE, 65), GONE],
        "fails: overloaded",
    ),
    "a Window for each event that was sent": (
        "8",
        [
            OPEN,
            *([local("Data", 2, **BYTES), remote("Window", 0, stream=2, credit=74)] * 70),
        ],
        "accepted",
    ),
    "Windows while 1,024 bytes are read: 5 with a reason, 64 without": (
        "8",
        [OPEN, local("Data", 2, bytes=bytes(1_024)), again(LATE_WINDOW, 69)],
        "accepted",
    ),
    "Windows while 1,024 bytes are read: 65 without a reason": (
        "8",
        [OPEN, local("Data", 2, bytes=bytes(1_024)), again(LATE_WINDOW, 70)],
        "fails: overloaded",
    ),
    "Chunks of a call, the last of which takes its credit below zero": (
        "8",
        [STREAMED_CALL, again(CHUNK, 2)],
        "accepted",
    ),
    "a Chunk of a call at no credit": (
        "8",
        [STREAMED_CALL, again(CHUNK, 2), CHUNK],
        "fails: protocol-error",
    ),
    "Chunks of a call that was given up, within its credit": (
        "8",
        [STREAMED_CALL, GIVE_UP, again(CHUNK, 2)],
        "ignored",
    ),
    "a Chunk of a call that was given up, at no credit": (
        "8",
        [STREAMED_CALL, GIVE_UP, again(CHUNK, 2), CHUNK],
        "fails: protocol-error",
    ),
    "Chunks before and after Cancel share the credit": (
        "8",
        [STREAMED_CALL, CHUNK, GIVE_UP, CHUNK, CHUNK],
        "fails: protocol-error",
    ),
    "a Chunk of a call that expects none": (
        "8",
        [local("Call", 1, 7, topic="t"), CHUNK],
        [sent("Cancel", 1, request=7)],
    ),
    "Chunks of a call that expects none, at no credit": (
        "8",
        [local("Call", 1, 7, topic="t"), again(CHUNK, 2), CHUNK],
        "fails: protocol-error",
    ),
    "Chunks under an id that is not in use": ("8", [again(CHUNK, 20)], "ignored"),
    "a rekey whose KeyUpdate comes after 29 s": (
        "6",
        [GOOD_OFFER, later(remote("KeyUpdate", 0, epoch=1, rekey=1), 29)],
        "accepted",
    ),
    "a rekey whose KeyUpdate comes after 31 s": (
        "6",
        [GOOD_OFFER, later(remote("KeyUpdate", 0, epoch=1, rekey=1), 31)],
        "fails: timeout",
    ),
    "Notes on a stream of no subscription": ("9", [OPEN, remote("Notes", 2, notes=[1])], "ignored"),
}


def rule_vectors() -> dict[str, Any]:
    """rules.json."""
    vectors = [
        {"name": name, "section": section, "steps": steps, **outcome(name, result)}
        for name, (section, steps, result) in RULES.items()
    ]
    return {
        "about": "Exchanges after the handshake. The node under test is the initiator, encrypted, "
        "suite x25519/ed25519/sha256/aes-256-gcm/each, every event sealed. Its calls: "
        "`parley.echo` answers its data at once, `a handler that waits` runs until it is "
        "cancelled. Its topics: after the last step it accepts a Subscribe of `news`, and rejects "
        "one of `rejected`.",
        "section": "2, 6, 8, 9, 12",
        "limits": {
            "max_payload": 1 << 20,
            "seal_events": 64,
            "seal_delay_ms": 20,
            "stream_window": 1_024,
            "max_streams": 2,
        },
        "vectors": vectors,
    }
