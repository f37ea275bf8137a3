"""Vectors for raw events, frames and limits (sections 2 and 5), and the number tables.

They are not encrypted; vectors_seals.py has encrypted ones.
"""

from typing import Any

from tests.reference import wire
from tests.reference.handshake import LIMITS, effective_limit
from tests.reference.primitives import (
    SIGNING_NAMES,
)
from tests.reference.wire import Event

Vector = dict[str, Any]


def shown(event: Event) -> Vector:
    """An event's fields as the vectors write them."""
    return {
        "stream": event.stream,
        "async_id": event.async_id,
        "category": event.category,
        "subcategory": event.subcategory,
        "payload": event.payload.hex(),
    }


def event_vectors() -> dict[str, Any]:
    """events.json."""
    vectors: list[Vector] = []
    for name, event in {
        "the smallest: Ping, nine bytes": Event(0, 1, 1, 6),
        "the greatest fields": Event(2**32 - 1, 65_535, 255, 255, b"\xa0"),
        "a Call": Event(1, 7, 3, 1, wire.cells_payload(topic="parley.echo", data="hello")),
        "Data of the one byte zero is data": Event(3, 0, 2, 5, b"\x00"),
        "Data of two zero bytes": Event(3, 0, 2, 5, b"\x00\x00"),
        "an application's own bytes": Event(5, 0, 64, 1, b"\x00\x00"),
    }.items():
        vectors.append(
            {"name": name, "kind": "raw", "input": event.raw.hex(), "expected": shown(event)}
        )
    for name, text in {
        "nothing": "",
        "the stream id alone": "00000001",
        "eight bytes": "0000000100000106",
        "category zero": "000000010000000600",
        "subcategory zero": "000000010000010000",
    }.items():
        vectors.append(
            {
                "name": name,
                "kind": "raw",
                "input": text,
                "fails": "protocol-error",
                "why": "nine bytes or more, category and subcategory 1..255",
            }
        )
    vectors.extend(
        {
            "name": f"the application sends the payload 00 in category {category}",
            "kind": "send",
            "event": shown(Event(1, 0, category, 1, b"\x00")),
            "fails": "local",
            "why": "the byte 00 means 'no payload'; the sender "
            "refuses a caller's own payload of that byte, but in Data",
        }
        for category in (1, 2, 3, 64)
    )
    vectors.append(
        {
            "name": "the application sends empty Data",
            "kind": "send",
            "event": shown(Event(3, 0, 2, 5)),
            "fails": "local",
            "why": "Data is never empty",
        }
    )
    two = [Event(0, 1, 1, 6), Event(0, 1, 1, 7)]
    data = b"".join(wire.frame(event.raw) for event in two)
    vectors.append(
        {
            "name": "two frames",
            "kind": "frames",
            "limit": 16_384,
            "input": data.hex(),
            "expected": [event.raw.hex() for event in two],
        }
    )
    vectors.append(
        {
            "name": "one frame and a half",
            "kind": "frames",
            "limit": 16_384,
            "input": data[:-5].hex(),
            "expected": [two[0].raw.hex()],
            "rest": len(data) - 5 - 13,
        }
    )
    vectors.append(
        {
            "name": "a length of exactly the limit",
            "kind": "frames",
            "limit": 16_384,
            "input": "00004000",
            "expected": [],
            "rest": 4,
        }
    )
    for name, text in {
        "one byte over the limit, from its length alone": "00004001",
        "4 GiB": "ffffffff",
    }.items():
        vectors.append(
            {
                "name": name,
                "kind": "frames",
                "limit": 16_384,
                "input": text,
                "fails": "frame-too-large",
                "why": "noticed before the body",
            }
        )
    for signing in (None, *SIGNING_NAMES):
        for sealing in ("chain", "each") if signing else (None,):
            vectors.extend(
                {
                    "name": f"frame limit: {signing or 'plaintext'} {sealing or ''} {payload}",
                    "kind": "limit",
                    "signing": signing,
                    "sealing": sealing,
                    "max_payload": payload,
                    "expected": wire.frame_limit(payload, signing, sealing),
                }
                for payload in (1_024, 16_384, 1 << 20, 1 << 26)
            )
    for kind, (default, smallest, greatest) in LIMITS.items():
        stated = [None, smallest, smallest + 1, default, greatest, greatest + 1, 2**64 - 1]
        vectors += [
            {
                "name": f"{kind} stated as {value}",
                "kind": "stated-limit",
                "limit_name": kind,
                "stated": None if value is None else str(value),
                "expected": effective_limit(kind, value),
            }
            for value in stated
        ]
        if smallest:
            vectors.append(
                {
                    "name": f"{kind} stated as {smallest - 1}",
                    "kind": "stated-limit",
                    "limit_name": kind,
                    "stated": str(smallest - 1),
                    "fails": "protocol-error",
                    "why": "below the smallest",
                }
            )
    return {"about": "Raw events, frames and their limits.", "section": "2, 5", "vectors": vectors}


def table_vectors() -> dict[str, Any]:
    """tables.json."""
    vectors: list[Vector] = []
    for name, number in wire.CODES.items():
        vectors.append(
            {
                "name": f"codes: {name}",
                "table": "codes",
                "value": number,
                "in": ["Reject", "Reset", "Close"],
            }
        )
    for name, number in wire.RESET_CODES.items():
        vectors.append(
            {"name": f"reset codes: {name}", "table": "codes", "value": number, "in": ["Reset"]}
        )
    for name, number in wire.RESULT_CODES.items():
        vectors.append(
            {
                "name": f"result codes: {name}",
                "table": "result codes",
                "value": number,
                "in": ["Result"],
            }
        )
    for name, (category, subcategory) in wire.TYPES.items():
        sealed = name in wire.ALWAYS_SEALED
        vectors.append(
            {
                "name": f"event types: {name}",
                "table": "event types",
                "value": [category, subcategory],
                "always_sealed": sealed,
            }
        )
    for name, number in wire.CELLS.items():
        vectors.append({"name": f"cells: {name}", "table": "cells", "value": number})
    vectors.extend(
        {
            "name": f"codes: {name}",
            "table": "codes",
            "value": None,
            "fails": "local",
            "why": "local only: never sent",
        }
        for name in ("connection-lost", "peer-not-trusted")
    )
    return {
        "about": "The numbers of sections 9 and 11 to 13.",
        "section": "9, 11, 12, 13",
        "vectors": vectors,
    }
