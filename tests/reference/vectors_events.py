"""Vectors for the payload of every event type except the bus's (sections 5 to 11, 17 to 20, 22).

Cells have the names of section 13; REQUIRED and OPTIONAL list them once.
"""

from typing import Any

from tests.reference import cbor, wire
from tests.reference.vectors_lbm import tree
from tests.reference.wire import CELLS, TYPES, Event

Vector = dict[str, Any]
IDS = [bytes([n]) * 32 for n in range(1, 10)]
TRACE = bytes(range(16))
UNASKED = (
    *("Notify", "Result", "Chunk", "Notes", "Cancel", "Named Reply", "Error", "End"),
    *("Account Answer", "Tunnel Answer"),
)
NO_PAYLOAD = ("Ping", "Pong", "Seal", "Finish")
REQUIRED: dict[str, dict[str, Any]] = {
    "Reject": {"code": 6},
    "KeyUpdate": {"epoch": 1},
    "RekeyOffer": {"share": bytes(32)},
    "RekeyAnswer": {"share": bytes(32)},
    "Close": {"code": 0},
    "Received": {"received": 262_144},
    "Open": {"label": "app/files"},
    "Window": {"stream": 3, "credit": 65_536},
    "Reset": {"stream": 3, "code": 32},
    "Call": {"topic": "parley.echo"},
    "Subscribe": {"topic": "news"},
    "Unsubscribe": {"topic": "news"},
    "Notify": {},
    "Result": {"code": 0},
    "Cancel": {"request": 7},
    "Chunk": {},
    "Notes": {"notes": [1, "two", None]},
    "Emit": {"name": "ping"},
    "Named Reply": {},
    "Error": {"code": 16},
    "End": {},
    "Login": {},
    "Logout": {},
    "Account Answer": {"code": 0},
    "Tunnel Answer": {"code": 28},
    "Dial": {"path": IDS[:3], "trace": TRACE, "deadline_ms": 30_000},
    "Have": {"have": [[IDS[0], 1_700_000_000_000], [IDS[1], 0]]},
    "Cards": {"envelopes": [b"an envelope", b"another"]},
    "Statements": {"statements": [b"a statement", b""]},
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "Reject": {"text": "a sentence"},
    "Error": {"text": "a sentence"},
    "KeyUpdate": {"rekey": 1},
    "Close": {"text": "a sentence"},
    "Open": {"window": 1_024},
    "Window": {"request": 7},
    "Reset": {"text": "a sentence"},
    "Call": {
        "data": {"a": 1},
        "deadline_ms": 1_000,
        "headers": {"trace": "x"},
        "window": 65_536,
        "once_key": bytes(range(16)),
    },
    "Subscribe": {"data": [1], "window": 65_536},
    "Notify": {"data": 1.5, "headers": {"k": "v"}, "topic": "news", "number": 42},
    "Result": {"data": "hello", "stream": 4},
    "Chunk": {"data": b"item"},
    "Notes": {"number": 42},
    "Emit": {"namespace": "space", "data": b"\x01"},
    "Named Reply": {"name": "tick", "namespace": "space", "data": b"\x01"},
    "End": {"data": b""},
    "Login": {"envelopes": [b"an envelope"], "exports": ["shop.*", "news"]},
    "Account Answer": {"text": "a sentence"},
    "Tunnel Answer": {"text": "a sentence", "hop": 7},
    "Have": {"slots": IDS[:2]},
}
# More valid cells of a type, and invalid ones, each with its label.
ALSO_RIGHT: dict[str, dict[str, dict[str, Any]]] = {
    "Login": {"exports alone": {"exports": []}},
    "Dial": {
        "to a server": {"to": IDS[:1], "trace": TRACE, "deadline_ms": 0},
        "to a node at its home": {"to": IDS[:2], "trace": TRACE, "deadline_ms": 1},
        "by the shortest path": {"path": IDS[:2], "trace": TRACE, "deadline_ms": 1},
        "by the longest path": {"path": IDS[:8], "trace": TRACE, "deadline_ms": 1},
    },
    "Have": {"of nothing": {"have": []}, "without statements": {"have": [], "slots": []}},
    "Cards": {"of nothing": {"envelopes": []}},
    "Reject": {"with the greatest code": {"code": 2**32 - 1}},
    "Close": {"with the greatest code": {"code": 2**32 - 1}},
    "Reset": {"with the greatest code": {"stream": 2**32 - 1, "code": 2**32 - 1}},
    "Result": {"with the greatest code": {"code": 2**32 - 1}},
    "Error": {"with the greatest code": {"code": 2**32 - 1}},
    "Window": {
        "with the greatest credit": {"stream": 3, "credit": 2**31 - 1},
        "with no credit": {"stream": 3, "credit": 0},
    },
    "Call": {
        "with an empty topic and the greatest numbers": {
            "topic": "",
            "deadline_ms": 2**64 - 1,
            "window": 2**31 - 1,
        },
    },
    "Open": {"with an empty label": {"label": ""}},
}
_DIAL: dict[str, Any] = {"trace": TRACE, "deadline_ms": 30_000}
ALSO_WRONG: dict[str, dict[str, dict[str, Any]]] = {
    "Error": {"with code 0": {"code": 0}},
    "Notify": {"with number 0": {"number": 0}},
    "Notes": {"with number 0": {"notes": [1], "number": 0}},
    "Dial": {
        "by a path, and to a server": {**_DIAL, "path": IDS[:2], "to": IDS[:1]},
        "to nobody": {**_DIAL, "to": []},
        "to three": {**_DIAL, "to": IDS[:3]},
        "to an id of 31 bytes": {**_DIAL, "to": [IDS[0][1:]]},
        "to an id that is text": {**_DIAL, "to": ["x" * 32]},
        "to an id that is in no array": {**_DIAL, "to": IDS[0]},
        "to a server without trace": {"to": IDS[:1], "deadline_ms": 30_000},
    },
}
# Of named events: the cells about the data, which are invalid without it.
OF_DATA: dict[str, dict[str, Any]] = {
    "Emit": {"format": 0},
    "Named Reply": {"format": 0},
    "End": {"format": 3},
}
# Of a topic with history: the cells that appear together or not at all.
TOGETHER: dict[str, dict[str, Any]] = {
    "Subscribe": {"topic_epoch": bytes(range(8)), "number": 41},
    "Result": {"topic_epoch": bytes(range(8)), "number": 41, "recovered": True},
}
# cell: values of a wrong type, or out of range
WRONG: dict[str, list[Any]] = {
    "code": ["0", -1, 2**32, 1.0],
    "text": [b"x", 1],
    "stream": ["3", -1, 2**32],
    "label": [b"x", 1],
    "credit": ["1", -1, 2**31],
    "topic": [b"x", 1, None],
    "deadline_ms": ["1", -1, 1.0],
    "headers": [[], {1: 2}],
    "request": ["1", -1, 0, 65_536],
    "name": [b"x", 1],
    "namespace": [b"x", 1],
    "format": ["0", -1, 256],
    "share": ["x", 1],
    "window": ["1", 0, 2**31],
    "epoch": ["1", -1],
    "notes": [1, {}],
    "rekey": ["1", -1],
    "received": ["1", -1, 1.0],
    "once_key": ["x" * 16, bytes(15), bytes(17), b""],
    "topic_epoch": ["x" * 8, bytes(7), bytes(9)],
    "number": ["1", -1],
    "recovered": [1, "true"],
    "path": ["x", {}, IDS[:1], IDS[:9], [IDS[0], IDS[1][1:]], [IDS[0], "x" * 32]],
    "trace": ["x" * 16, bytes(15), bytes(17)],
    "have": [
        *(1, {}, [IDS[0]], [[IDS[0]]], [[IDS[0], 1, 1]], [[IDS[0], -1]], [[IDS[0], "1"]]),
        *([[IDS[0], True]], [[IDS[0][1:], 1]], [[IDS[0].hex(), 1]]),
    ],
    "slots": ["x", {}, [1], ["x" * 32], [bytes(31)], [bytes(33)], [[bytes(32)]]],
    "statements": [b"x", {}, [], [1], ["x"], [[b"x"]], [b""] * 65],
    "envelopes": [b"x", {}, ["x"], [[b"x"]], [b""] * 1_025],
    "hop": ["1", -1, 8, 1.0],
    "exports": ["shop.*", {}, [1], [b"x"], ["e" * 257], ["e"] * 65],
}


def payload_vectors() -> dict[str, Any]:
    """payloads.json."""
    vectors: list[Vector] = []
    for name in NO_PAYLOAD:
        category, subcategory = TYPES[name]
        raw = Event(3 if name == "Finish" else 0, 0, category, subcategory).raw
        vectors.append(
            {
                "name": name,
                "event": name,
                "category": category,
                "subcategory": subcategory,
                "cells": {},
                "expected": "",
                "raw_event": raw.hex(),
            }
        )
    for name, cells in REQUIRED.items():
        vectors.append(_right(name, f"{name}, required cells", cells))
        optional, of_data = OPTIONAL.get(name, {}), OF_DATA.get(name, {})
        for cell, value in optional.items():
            vectors.append(_right(name, f"{name} with {cell}", cells | {cell: value}))
        for cell in of_data:
            having = {"data": optional["data"]}
            vectors.append(_right(name, f"{name} with data and {cell}", cells | having | of_data))
            vectors.append(_wrong(name, f"{name} with {cell} alone", cells | of_data, "no data"))
        together = TOGETHER.get(name, {})
        if together:
            vectors.append(_right(name, f"{name} with a position", cells | together))
        for cell in together:
            rest = {key: value for key, value in together.items() if key != cell}
            title = f"{name} with a position without {cell}"
            vectors.append(_wrong(name, title, cells | rest, "a position is whole"))
        optional = optional | of_data | together
        if len(optional) > 1:
            vectors.append(_right(name, f"{name}, all cells", cells | optional))
        vectors.append(
            _right(
                name,
                f"{name} with unknown cells and noise",
                cells | {"_0": bytes(5), "_200": 1, "_300": {"a": b"b"}},
            )
        )
        for cell in cells:
            rest = {key: value for key, value in cells.items() if key != cell}
            vectors.append(_wrong(name, f"{name} without {cell}", rest, f"{cell} is required"))
        vectors += [
            _right(name, f"{name} {how}", other) for how, other in ALSO_RIGHT.get(name, {}).items()
        ]
        vectors += [
            _wrong(name, f"{name} {how}", other, "not as the document has it")
            for how, other in ALSO_WRONG.get(name, {}).items()
        ]
        for cell in cells | optional:
            vectors.extend(
                _wrong(
                    name,
                    f"{name} with {cell} = {_short(bad)}",
                    cells | optional | {cell: bad},
                    "wrong type or out of range",
                )
                for bad in WRONG.get(cell, [])
            )
        for reason, data in {
            "that is not LBM": b"\xff",
            "that is an array": b"\x80",
            "with a trailing byte": _encode(cells) + b"\x00",
        }.items():
            vectors.append(_failing(name, f"{name} {reason}", data, "malformed"))
    return {
        "about": "Payloads of event types, with cells by name; `fails` is the code that a receiver "
        "closes with (categories 1 and 2), or answers with (categories 3 to 7, requests whose "
        "async id is not 0), or 'malformed' for what nobody waits for.",
        "section": "5 to 11, 13, 17 to 20",
        "vectors": vectors,
    }


def _encode(cells: dict[str, Any]) -> bytes:
    return cbor.encode_payload(
        {int(name[1:]) if name[0] == "_" else CELLS[name]: v for name, v in cells.items()}
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:30]}..{text[-10:]} ({len(text)} characters)"


def _shown(name: str) -> Vector:
    category, subcategory = TYPES[name]
    return {"event": name, "category": category, "subcategory": subcategory}


def _right(name: str, title: str, cells: dict[str, Any]) -> Vector:
    payload = _encode(cells)
    wire.named_types(cbor.decode_payload(payload))
    known = {key: tree(value) for key, value in cells.items() if key[0] != "_"}
    kind = {} if len(known) == len(cells) else {"read_only": True}
    return {"name": title, **_shown(name), "cells": known, "expected": payload.hex(), **kind}


def _wrong(name: str, title: str, cells: dict[str, Any], why: str) -> Vector:
    return _failing(name, title, _encode(cells), why)


def _failing(name: str, title: str, payload: bytes, why: str) -> Vector:
    category = TYPES[name][0]
    fails = "protocol-error" if category < 3 else "malformed (23)"
    vector: Vector = {"name": title, **_shown(name), "input": payload.hex()}
    if category == TYPES["Have"][0]:
        fails = "malformed"
    elif name in UNASKED:
        fails = "malformed"
        vector["ambiguous"] = (
            "an answer or an event without a request: what a receiver does is open"
        )
    return vector | {"fails": fails, "why": why}
