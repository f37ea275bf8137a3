"""Vectors for the bus: the requests of category 6, and their answers (section 16).

What a cell may be and may not is written once, in RIGHT and WRONG; which cells a type
has, in REQUIRED and OPTIONAL.
"""

from typing import Any

from tests.reference import cbor
from tests.reference.vectors_lbm import tree
from tests.reference.wire import CELLS, TYPES

Vector = dict[str, Any]

ID = "1700000000000-0"
LAST_ID = "18446744073709551615-18446744073709551615"
CONSUMING = ("name", "group", "consumer")
REQUIRED: dict[str, tuple[str, ...]] = {
    "Publish": ("rows",),
    "Join": (*CONSUMING, "after"),
    "Read": (*CONSUMING, "count"),
    "Own": (*CONSUMING, "count"),
    "Claim": (*CONSUMING, "count", "idle_ms"),
    "Touch": (*CONSUMING, "ids"),
    "Ack": ("name", "group", "ids"),
    "Nack": (*CONSUMING, "ids", "delay_ms", "text"),
    "Release": (*CONSUMING, "ids"),
    "Bury": (*CONSUMING, "ids", "text"),
    "Streams": (),
    "Groups": ("name",),
    "Consumers": ("name", "group"),
    "Pending": ("name", "group", "count", "after"),
    "History": ("name", "count", "after"),
    "Rewind": ("name", "group", "after"),
    "Redeliver": ("name", "group", "ids"),
    "Trim": ("name",),
    "Drop": ("name", "ids"),
    "Remove Consumers": ("name", "group", "idle_ms"),
    "Remove Group": ("name", "group"),
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "Publish": {"durable": False},
    "Read": {"wait_ms": 60_000},
    "Streams": {"after": "auth.user_registered"},
    "Groups": {"after": "mailer"},
    "Consumers": {"after": "host-7"},
    "History": {"until": LAST_ID, "wait_ms": 1},
    "Trim": {"max_length": 0, "before": ID, "max_bytes": 2**63 - 1, "approximate": True},
}
NAMES_PAGED = ("Streams", "Groups", "Consumers")
# Requests that read or trim a stream accept the stream of a whole API.
WHOLE_API = (*NAMES_PAGED[1:], "Pending", "History", "Rewind", "Redeliver", "Trim", "Drop")
ONE_ID = ("Nack", "Bury")
EVENT = ["auth.user_registered", '{"username":"admin"}', None, 1]
RIGHT: dict[str, Any] = {
    "name": "auth.user_registered",
    "group": "mailer",
    "consumer": "host-7",
    "count": 100,
    "ids": [ID],
    "rows": [EVENT, ["a.b", "{}", "order-17", 2**31 - 1]],
    "after": "0-0",
    "idle_ms": 60_000,
    "delay_ms": 2**40 - 1,
    "text": "ValueError: no address",
}
WRONG: dict[str, list[Any]] = {
    "name": ["", "auth", "auth.", ".user", "a b.c", "a.b\n", "a." + "b" * 255, b"a.b", 1],
    "group": ["", "two words", "m\u00fcller", "g" * 257, b"g"],
    "consumer": ["", "two words", "c" * 204, 1],
    "count": [0, 1_001, -1, "1", True],
    "ids": [
        [],
        ["1"],
        ["01-0"],
        ["1-00"],
        ["1-0 "],
        ["18446744073709551616-0"],
        ["$"],
        [1],
        [b"1-0"],
        "1-0",
    ],
    "rows": [
        [],
        {},
        [[]],
        ["auth.user_registered"],
        [EVENT[:3]],
        [[*EVENT, None]],
        [["auth", *EVENT[1:]]],
        [[EVENT[0], {"username": "admin"}, None, 1]],
        [[EVENT[0], b"{}", None, 1]],
        [[EVENT[0], "{}", "", 1]],
        [[EVENT[0], "{}", "two words", 1]],
        [[EVENT[0], "{}", "k" * 257, 1]],
        [[EVENT[0], "{}", 7, 1]],
        [[EVENT[0], "{}", None, 0]],
        [[EVENT[0], "{}", None, 2**31]],
        [[EVENT[0], "{}", None, "1"]],
        [[EVENT[0], "{}", None, True]],
    ],
    "after": ["", "first", "1", "-1-0", 0],
    "until": ["", "$", "1", 1],
    "before": ["", "$", "1", 1],
    "idle_ms": [-1, 2**40, 1.0, "1"],
    "delay_ms": [-1, 2**40, 1.0, "1"],
    "wait_ms": [-1, 60_001, 1.0, "1"],
    "text": ["e" * 501, b"e", 1],
    "durable": [1, "true", None],
    "approximate": [1, "true", None],
    "max_length": [-1, 2**63, "1", True],
    "max_bytes": [-1, 2**63, "1", True],
}
# Answers by their request: their rows, and invalid rows.
STORED = [ID, *EVENT]
ROWS: dict[str, tuple[list[Any], list[Any]]] = {
    "Publish": ([[ID, False], [LAST_ID, True]], [[ID], [ID, 0], ["1", True], [ID, True, 1]]),
    "Read": (
        [[*STORED, 1], [ID, "a.b", "no JSON", "order-17", 0, 2]],
        [
            STORED,
            [*STORED, "1"],
            [*STORED, 1, 1],
            [ID, 1, "{}", None, 1, 1],
            [ID, "a.b\x1b[2J", "{}", None, 1, 1],
        ],
    ),
    "History": (
        [STORED],
        [
            EVENT,
            [*STORED, 1],
            [None, *EVENT],
            [ID, "auth", "{}", None, 1],
            [ID, "a.*", "{}", None, 1],
            [ID, "a.b", "{}", "", 1],
            [ID, "a.b", "{}", "two words", 1],
            [ID, "a.b", "{}", None, 2**31],
        ],
    ),
    "Streams": (
        [["a.*", 0, 0, None, None], ["a.c", 2, 90, ID, LAST_ID]],
        [
            ["a.b", -1, 0, None, None],
            ["a.b", 0, 0, "", ""],
            ["a.b", 0, 0, None],
            ["", 0, 0, None, None],
            ["a.b\n", 0, 0, None, None],
            ["a." + "b" * 255, 0, 0, None, None],
        ],
    ),
    "Groups": (
        [["a.b", "g", None, 1, 2, 3, 4, "0-0"], ["a.b", "h", 7, 0, 0, 0, 0, ID]],
        [
            ["a.b", "g", "7", 1, 2, 3, 4, "0-0"],
            ["a.b", "g", 7, 1, 2, 3, 4, None],
            ["a", "g", 7, 1, 2, 3, 4, "0-0"],
            ["a.b", "", 7, 1, 2, 3, 4, "0-0"],
            ["a.b", "\x1b]0;x\x07", 7, 1, 2, 3, 4, "0-0"],
            ["a.b", "two words", 7, 1, 2, 3, 4, "0-0"],
        ],
    ),
    "Consumers": (
        [["host-7", 1, 250], ["c" * 256, 0, 0]],
        [
            ["host-7", 1],
            ["host-7", 1, 0.25],
            [None, 1, 1],
            ["", 1, 1],
            ["c" * 257, 1, 1],
            ["m\u00fcller", 1, 1],
            ["\x1b[2J", 1, 1],
        ],
    ),
    "Pending": (
        [[ID, "host-7", 1, 250, None], [ID, "", 0, 250, 1_000]],
        [
            [ID, "host-7", 1, 250],
            [ID, None, 1, 250, None],
            [ID, "c", 1, 250, -1],
            [ID, "two words", 1, 250, None],
        ],
    ),
    "Remove Consumers": ([["host-7"]], [["host-7", 1], [1], [], [""], ["\x9b2J"]]),
}
OTHER_ANSWERS: dict[str, dict[str, Any]] = {
    "Join": {"code": 0},
    "Ack": {"code": 0, "count": 2},
    "Bury": {"code": 0, "ids": [ID]},
    "Redeliver": {"code": 0, "ids": []},
    "refused": {"code": 20},
    "refused, with a text": {"code": 24, "text": "auth.x: $.n: 'x' is not of type 'integer'"},
    "History, an event that does not fit": {"code": 21, "ids": [ID]},
}


def bus_vectors() -> dict[str, Any]:
    """bus.json."""
    vectors: list[Vector] = []
    tried: set[str] = set()
    for name, cells in REQUIRED.items():
        vectors += _requests(name, cells, tried)
    for name, (rows, others) in ROWS.items():
        whole = {"code": 0, "rows": rows}
        vectors.append(_right("Answer", f"Answer to {name}", whole, {"answers": name}))
        vectors += [
            _wrong("Answer", f"Answer to {name} with the row {row!r}", {"code": 0, "rows": [row]})
            | {"answers": name}
            for row in others
        ]
    paged = {"code": 0, "rows": [ROWS["Streams"][0][0]], "more": True}
    vectors.append(
        _right(
            "Answer", "Answer to Streams, of which there are more", paged, {"answers": "Streams"}
        )
    )
    for name, named in OTHER_ANSWERS.items():
        vectors.append(_right("Answer", f"Answer: {name}", named))
    unreadable: dict[str, dict[str, Any]] = {
        "without code": {"rows": []},
        "whose code is text": {"code": "0"},
        "whose code is too great": {"code": 2**32},
        "whose text is bytes": {"code": 24, "text": b"why"},
        "whose text is too long": {"code": 24, "text": "e" * 501},
        "whose ids are too many": {"code": 0, "ids": ["0-0"] * 1_001},
        "whose ids are numbers": {"code": 0, "ids": [1]},
        "whose rows are a map": {"code": 0, "rows": {}},
        "whose count is negative": {"code": 0, "count": -1},
        "whose more is a number": {"code": 0, "more": 1},
    }
    vectors += [_wrong("Answer", f"Answer {why}", named) for why, named in unreadable.items()]
    return {
        "about": "Payloads of category 6; `fails` is what a request is answered with, or that an "
        "answer cannot be read. `answers` is the request whose rows an answer has.",
        "section": "16, 13",
        "vectors": vectors,
    }


def _requests(name: str, required: tuple[str, ...], tried: set[str]) -> list[Vector]:
    """Of a cell that was `tried` with another type one wrong value is enough."""
    optional = OPTIONAL.get(name, {})
    cells = {cell: RIGHT[cell] for cell in required}
    vectors = [_right(name, f"{name}, required cells", cells)]
    vectors += [
        _right(name, f"{name} with {cell}", cells | {cell: value})
        for cell, value in optional.items()
    ]
    if name in ("Join", "Rewind", "History"):
        vectors.append(_right(name, f"{name} after what is there", cells | {"after": "$"}))
    elif name == "Pending":
        vectors.append(_wrong(name, "Pending after what is there", cells | {"after": "$"}))
    if name in WHOLE_API:
        vectors.append(_right(name, f"{name} of a whole API", cells | {"name": "auth.*"}))
    elif "name" in required and not name.startswith("Remove"):
        vectors.append(_wrong(name, f"{name} of a whole API", cells | {"name": "auth.*"}))
    if name in ONE_ID:
        vectors.append(_wrong(name, f"{name} of two ids", cells | {"ids": [ID, LAST_ID]}))
    elif "ids" in required:
        vectors.append(_right(name, f"{name} of two ids", cells | {"ids": [ID, LAST_ID]}))
        vectors.append(_wrong(name, f"{name} of 1,001 ids", cells | {"ids": ["1-0"] * 1_001}))
    unknown = {"_0": bytes(5), "_200": 1, "_300": {"a": b"b"}}
    vectors.append(_right(name, f"{name} with unknown cells and noise", cells | unknown))
    for cell in required:
        rest = {key: value for key, value in cells.items() if key != cell}
        vectors.append(_wrong(name, f"{name} without {cell}", rest))
    for cell in (*required, *optional):
        wrong = ["n" * 257, 1] if cell == "after" and name in NAMES_PAGED else WRONG[cell]
        wrong = wrong[:1] if cell in tried else wrong
        tried.add(cell)
        vectors += [
            _wrong(name, f"{name} with {cell} = {_shown(bad)}", cells | optional | {cell: bad})
            for bad in wrong
        ]
    for reason, data in {
        "that is not LBM": b"\xff",
        "that is an array": b"\x80",
        "with a trailing byte": _encode(cells) + b"\x00",
    }.items():
        vectors.append(_failing(name, f"{name} {reason}", data))
    return vectors


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... of {len(value)}"


def _encode(cells: dict[str, Any]) -> bytes:
    return cbor.encode_payload(
        {int(name[1:]) if name[0] == "_" else CELLS[name]: value for name, value in cells.items()}
    )


def _type(name: str) -> Vector:
    category, subcategory = TYPES[f"Bus {name}"]
    return {"event": name, "category": category, "subcategory": subcategory}


def _right(
    name: str, title: str, cells: dict[str, Any], more: dict[str, Any] | None = None
) -> Vector:
    known = {key: tree(value) for key, value in cells.items() if key[0] != "_"}
    kind: Vector = {} if len(known) == len(cells) else {"read_only": True}
    expected = {"cells": known, "expected": _encode(cells).hex()}
    return {"name": title, **_type(name), **expected, **kind, **(more or {})}


def _wrong(name: str, title: str, cells: dict[str, Any]) -> Vector:
    return _failing(name, title, _encode(cells))


def _failing(name: str, title: str, payload: bytes) -> Vector:
    fails = "malformed" if name == "Answer" else "malformed (23)"
    return {
        "name": title,
        **_type(name),
        "input": payload.hex(),
        "fails": fails,
        "why": "missing, of a wrong type or out of range" if name != "Answer" else "unreadable",
    }
