"""Vectors for the journal's format (docs/journal.md): names, records, bodies, segments.

Valid cases are built from fields and read again here; an invalid case changes one part and is
refused here. Boxes, proofs and events are stand-ins and are not decrypted.
"""

from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

from tests.reference import cbor, journal
from tests.reference.journal import CELLS, KEYS, KINDS, OF_SESSION, PREFIX, Fields, Malformed
from tests.reference.recorded import seed

Vector = dict[str, Any]

TIME: Final = 1_767_225_600_123_456_789
NODE: Final = "abcdefghijklmnopqrstuvwxyz234567" + "abcdefghijklmnopqrsa"
FACTS: Final[Fields] = {
    "session_id": seed("session id"),
    "initiator": True,
    "local_keys": [["ed25519", seed("local key"), None]],
    "remote_keys": [["ed25519", seed("remote key"), None]],
    "local_role": "peer",
    "remote_role": "server",
    "address": "tcp://192.0.2.1:7000",
    "suite": ["x25519", "ed25519", "sha256", "aes-256-gcm", "chain"],
    "commit": seed("commit"),
    "seal_events": 64,
    "seal_delay": 20,
}
BOX: Final = [seed("auditor"), seed("box 1") + seed("box 2") + bytes(16)]
BOXES: Final = [BOX, [seed("other auditor"), BOX[1][::-1]]]
NULLS: Final = {"after_offer": None, "after_answer": None, "rekey_commit": None}
REKEY: Final[Fields] = {
    "after_offer": seed("offer"),
    "after_answer": seed("answer"),
    "rekey_commit": seed("rekey commit"),
}
RECEIVED: Final[Fields] = {
    "chain": seed("received chain"),
    "place": 2**40,
    "epoch": 3,
    "generation": 0,
    "updates": 3,
    "unsealed": 63,
    "counters": [[0, 1], [1, 2**33], [2**32 - 1, 0]],
}
SENT: Final[Fields] = {
    "chain": seed("sent chain"),
    "place": 0,
    "epoch": 0,
    "generation": 1,
    "updates": 0,
    "unsealed": 0,
    "counters": [],
}
GENERATION_0: Final[Fields] = {"generation": 0, **NULLS, "boxes": [BOX]}
CHECKPOINT: Final[Fields] = {
    "session": 2**32 - 1,
    **FACTS,
    "th1": seed("th1"),
    "th2": seed("th2"),
    "started": TIME,
    "directions": [RECEIVED, SENT],
    "secrets": [GENERATION_0],
}
TUNNEL: Final[Fields] = {
    "trace": seed("trace")[:16],
    "hop": 1,
    "length": 4,
    "before": seed("before"),
    "after": seed("after"),
    "began": TIME,
    "ended": TIME + 10**9,
    "forward": 300,
    "back": 70_000,
}
GOOD: Final[dict[str, tuple[str, Fields]]] = {
    "segment": (
        "segment",
        {
            "format": "parley1 journal",
            "version": 1,
            "node_id": seed("node id"),
            "start": TIME,
            "number": 0,
            "auditors": [BOX[0]],
            "software": "parley 1.0",
        },
    ),
    "block": ("block", {"number": 1, "live": 2**32 - 1}),
    "checkpoint": ("checkpoint", CHECKPOINT),
    "checkpoint, with labels": ("checkpoint", CHECKPOINT | {"labels": seed("labels") * 2}),
    "checkpoint within a rekey": (
        "checkpoint",
        CHECKPOINT | {"secrets": [GENERATION_0, {"generation": 1, **REKEY, "boxes": BOXES}]},
    ),
    "session start": (
        "session start",
        {
            "session": 0,
            **FACTS,
            "t1": seed("t1"),
            "responder_proof": seed("responder proof"),
            "initiator_proof": seed("initiator proof"),
        },
    ),
    "secret of two auditors": ("secret", {"session": 7, "generation": 0, "boxes": BOXES}),
    "secret of a rekey": ("secret", {"session": 7, "generation": 300, "boxes": [BOX]}),
    "event received": (
        "event",
        {"session": 7, "direction": 0, "wire": bytes(4) + b"\0" + seed("wire") * 2},
    ),
    "event sent": ("event", {"session": 7, "direction": 1, "wire": seed("wire") * 3}),
    "key update": ("key update", {"session": 7, "direction": 0, "epoch": 1}),
    "key update of a rekey": (
        "key update",
        {"session": 7, "direction": 1, "epoch": 24, "generation": 1, **REKEY},
    ),
    "session end": (
        "session end",
        {
            "session": 7,
            "code": 0,
            "remote": True,
            "chains": [seed("chain 0"), seed("chain 1")],
            "places": [0, 2**40],
        },
    ),
    "session end, lost": (
        "session end",
        {
            "session": 7,
            "code": -1,
            "remote": False,
            "text": "reset by the peer",
            "chains": [seed("chain 0"), seed("chain 1")],
            "places": [5, 6],
        },
    ),
    "segment end": ("segment end", {"records": 9, "blocks": [150, 2**20 + 7, 2**33]}),
    "segment end of nothing, cut": ("segment end", {"records": 0, "blocks": [], "cut": 22}),
    "parted": ("parted", {"session": 7, "text": "the other side does not answer"}),
    "parted, nobody says why": ("parted", {"session": 0}),
    "resumed": ("resumed", {"session": 7, "resumption": 1}),
    "resumed many times": ("resumed", {"session": 2**32 - 1, "resumption": 2**48 - 1}),
    "tunnel": ("tunnel", TUNNEL),
    "tunnel of a home's account": (
        "tunnel",
        TUNNEL | {"hop": 0, "length": 2, "forward": 0, "back": 0},
    ),
    "tunnel of the longest path": (
        "tunnel",
        TUNNEL
        | {"hop": 6, "length": 8, "began": 0, "ended": 2**63 - 1}
        | {"forward": 2**48 - 1, "back": 2**48 - 1},
    ),
}
# Values of a wrong type, size or range, for each cell.
WRONG_TEXT: Final[list[Any]] = [b"x", None]
WRONG_UINT: Final[list[Any]] = [-1, "1"]
WRONG_TIME: Final[list[Any]] = [2**63, *WRONG_UINT]
WRONG_COUNT: Final[list[Any]] = [2**48, *WRONG_UINT]
WRONG_BYTES: Final[list[Any]] = ["x", None]
WRONG_32: Final[list[Any]] = [bytes(31), bytes(33), "x" * 32]
WRONG_BOOL: Final[list[Any]] = [0, "x"]
WRONG_ARRAY: Final[list[Any]] = [b"x", {}]
WRONG: Final[dict[str, list[Any]]] = {
    "format": ["parley2 journal", b"parley1 journal"],
    "version": [2, 0, "1"],
    "auditors": [[bytes(31)], BOX[0], [None]],
    "suite": [FACTS["suite"][:4], [*FACTS["suite"], "x"], [1, 2, 3, 4, 5], "x"],
    "boxes": [[[BOX[0]]], [[bytes(31), BOX[1]]], [[BOX[0], "x"]], [BOX[0]], {}],
    "directions": [[], [[]] * 2, {}],
    "secrets": [[[0, None, None, None]], [[1, None, None, None, []]], [[-1] * 5], {}],
    "chains": [[seed("chain 0")], [seed("chain 0")] * 3, ["x", "y"], b"x"],
    "places": [[1], [1, 2, 3], [1, -1], [1, None]],
    "blocks": [bytes(7), bytes(9), [1]],
    "code": ["0", None, 1.0, False],
    "labels": WRONG_BYTES,
    "resumption": [0, 2**48, *WRONG_UINT],
    "trace": [bytes(15), bytes(17), "x" * 16],
    "hop": [3, 2**64 - 1, *WRONG_UINT],
    "length": [1, 2, 9, *WRONG_UINT],
    **dict.fromkeys(("began", "ended"), WRONG_TIME),
    **dict.fromkeys(("forward", "back"), WRONG_COUNT),
    **dict.fromkeys(("node_id", "session_id", "before", "after"), WRONG_32),
    **dict.fromkeys(("local_keys", "remote_keys"), WRONG_ARRAY),
    **dict.fromkeys(("initiator", "remote"), WRONG_BOOL),
    **dict.fromkeys(("software", "local_role", "remote_role", "address", "text"), WRONG_TEXT),
    **dict.fromkeys(("commit", "t1", "responder_proof", "initiator_proof"), WRONG_BYTES),
    **dict.fromkeys(("th1", "th2", "after_offer", "after_answer", "rekey_commit"), WRONG_BYTES),
    **dict.fromkeys(("start", "number", "seal_events", "seal_delay", "started"), WRONG_UINT),
    **dict.fromkeys(("generation", "epoch", "records", "cut"), WRONG_UINT),
}
# Kinds whose wrong values are tried for all of their cells.
TRIED: Final = {
    "segment": "segment",
    "checkpoint": "checkpoint, with labels",
    "session start": "session start",
    "secret": "secret of a rekey",
    "key update": "key update of a rekey",
    "session end": "session end, lost",
    "segment end": "segment end of nothing, cut",
    "parted": "parted",
    "resumed": "resumed",
    "tunnel": "tunnel",
}


def journal_vectors() -> dict[str, Any]:
    """journal.json."""
    vectors = [*_names(), *_records(), *_bodies(), *_wrong_bodies(), *_segments()]
    return {
        "about": "The journal's files, format 1. Names of fields are those of its tables, with _ "
        "for blanks; `body` of kind `body` has no head. Proofs, boxes and events are stand-ins.",
        "section": "docs/journal.md",
        "vectors": vectors,
    }


def _names() -> Iterator[Vector]:
    for time in (0, TIME, 951_782_400_000_000_999, 4_102_444_799_999_999_999):
        yield {
            "name": f"start at {time}",
            "kind": "start",
            "time": str(time),
            "expected": journal.start_text(time),
        }
    stem = f"{NODE}-{journal.start_text(TIME)}-00000012"
    for state in (".pjl", ".pjl.open", ".pjl.torn"):
        fields = journal.read_name(stem + state)
        yield {"name": f"a {state}", "kind": "name", "input": stem + state, "expected": fields}
    changed = {
        "no state": stem,
        "an unknown state": f"{stem}.pjl.part",
        "a state twice": f"{stem}.pjl.open.open",
        "upper case": f"{stem}.PJL",
        "seven digits": f"{stem[:-1]}.pjl",
        "nine digits": f"{stem}0.pjl",
        "digits of another script": f"{stem[:-1]}\u0662.pjl",
        "a short node id": f"{stem[1:]}.pjl",
        "a node id in capitals": f"{stem.replace(NODE, NODE.upper())}.pjl",
        "no run": f"{NODE}-00000012.pjl",
        "milliseconds": f"{stem.replace('123456Z', '123Z')}.pjl",
        "a folder": f"x/{stem}.pjl/x",
        "a line's end": f"{stem}.pjl\n",
    }
    for name, text in changed.items():
        _refused(journal.read_name, text)
        yield _failing(f"a name: {name}", "name", name, input=text)


def _records() -> Iterator[Vector]:
    records = {
        "the least": (6, 0, b""),
        "the greatest time": (255, 2**64 - 1, b"x"),
        "an unknown kind": (200, TIME, seed("body")),
        "a block": (2, TIME, journal.body("block", {"number": 0, "live": 0})),
    }
    for name, (kind, time, body) in records.items():
        data = journal.record(kind, time, body)
        yield {
            "name": f"a record: {name}",
            "kind": "record",
            "number": kind,
            "time": str(time),
            "body": body.hex(),
            "expected": data.hex(),
        }
    good = journal.record(6, TIME, seed("body"))
    for name, data, status in (
        ("one byte", good[:1], "torn"),
        ("seven bytes", good[:7], "torn"),
        ("a frame alone", good[:8], "torn"),
        ("without its last byte", good[:-1], "torn"),
        ("the greatest length", (2**26 + 2**16).to_bytes(4) + good[4:], "torn"),
        ("a length beyond", (2**26 + 2**16 + 1).to_bytes(4) + good[4:], "bad-length"),
        ("length 8", (8).to_bytes(4) + good[4:16], "bad-length"),
        ("zeros", bytes(40), "bad-length"),
        ("another body", good[:-1] + bytes([good[-1] ^ 1]), "bad-crc"),
        ("another kind", good[:8] + b"\7" + good[9:], "bad-crc"),
        ("another time", good[:16] + b"\7" + good[17:], "bad-crc"),
        ("another crc", good[:4] + bytes(4) + good[8:], "bad-crc"),
        ("a crc of the length too", _crc_of_all(good), "bad-crc"),
    ):
        [found] = journal.records(data)
        if found["status"] != status:
            raise ValueError(f"{name} is {found['status']}")
        yield _failing(f"no record: {name}", "record", status, input=data.hex())


def _crc_of_all(record: bytes) -> bytes:
    wrong = crc32(record[:4] + record[8:])
    return record[:4] + wrong.to_bytes(4) + record[8:]


def _bodies() -> Iterator[Vector]:
    for name, (kind, fields) in GOOD.items():
        body = journal.body(kind, fields)
        found = journal.read_body(kind, body).items()
        if {key: value for key, value in found if value is not None} != fields:
            raise ValueError(f"{name} is read as something else")
        yield _body(name, kind, body, fields)
        if kind in CELLS and kind != "segment end":
            at = 4 * len(PREFIX.get(kind, ())[:1]) + len(PREFIX.get(kind, ())[1:])
            more = cbor.decode_payload(body[at:]) | {0: bytes(3), 999: ["unknown"]}
            body = body[:at] + cbor.encode_payload(more)
            vector = _body(f"{name}, with noise and an unknown key", kind, body, fields)
            yield vector | {"read_only": True}


def _wrong_bodies() -> Iterator[Vector]:
    """Yield a case for each missing cell and each invalid value, then cases with invalid bytes."""
    for kind, name in TRIED.items():
        fields = GOOD[name][1]
        for cell in CELLS[kind]:
            if kind == "checkpoint" and cell in OF_SESSION:
                continue  # as in `session start`
            bare = cell.strip("[]")
            if bare == cell:
                yield _wrong(f"{kind} without {cell}", kind, _with(kind, fields, bare))
            for number, value in enumerate(WRONG[bare]):
                body = _with(kind, fields, bare, value)
                yield _wrong(f"{kind}, wrong {bare} {number}", kind, body)
    rekeyed = GOOD["key update of a rekey"][1]
    for cell in ("generation", *REKEY):
        body = _with("key update", rekeyed, cell)
        yield _wrong(f"key update of a rekey without {cell}", "key update", body)
    body = _with("key update", rekeyed, "generation", 0)
    yield _wrong("key update of generation 0", "key update", body)
    for name, entry in _wrong_directions():
        body = _with("checkpoint", CHECKPOINT, "directions", [entry, entry])
        yield _wrong(f"checkpoint, a direction with {name}", "checkpoint", body)
    first = [0, None, None, None, [BOX]]
    for number in (1, 2, 3):
        entry = [*first[:number], seed("x"), *first[number + 1 :]]
        body = _with("checkpoint", CHECKPOINT, "secrets", [entry])
        yield _wrong(f"checkpoint, generation 0 with value {number}", "checkpoint", body)
    for name, (kind, fields) in GOOD.items():
        good = journal.body(kind, fields)
        if kind != "event":
            yield _wrong(f"{name}, cut", kind, good[:-1])
            yield _wrong(f"{name}, with a byte more", kind, good + b"\0")
        yield _wrong(f"{name}, its first bytes", kind, good[: 4 if kind in PREFIX else 0])
        if "direction" in fields:
            yield _wrong(f"{name}, direction 2", kind, good[:4] + b"\2" + good[5:])
    end = journal.body("segment end", GOOD["segment end"][1])
    for number in (0, len(end), len(end) + 8, len(end) + 17):
        body = end[:-4] + number.to_bytes(4)
        yield _wrong(f"segment end, its last bytes say {number}", "segment end", body)


def _wrong_directions() -> Iterator[tuple[str, list[Any]]]:
    good = [*(RECEIVED[name] for name in journal.DIRECTION[:6]), bytes(12)]
    yield "no counters", good[:6]
    for number, name in enumerate(journal.DIRECTION):
        for wrong in (None, -1) if 0 < number < 6 else (None, "x"):
            yield f"{name} {wrong}", [*good[:number], wrong, *good[number + 1 :]]
    yield "counters of 13 bytes", [*good[:6], bytes(13)]
    yield "a counter twice", [*good[:6], bytes(24)]


def _segments() -> Iterator[Vector]:
    event = journal.record(KINDS["event"], TIME, journal.body(*GOOD["event sent"]))
    head = journal.record(KINDS["segment"], TIME, journal.body(*GOOD["segment"]))
    block = journal.record(KINDS["block"], TIME, journal.body("block", {"number": 0, "live": 0}))
    unknown = journal.record(200, TIME, b"from a later version")
    records = [head, block, event, unknown, block, event]
    blocks = [len(head), len(b"".join(records[:4]))]
    end = journal.body("segment end", {"records": 6, "blocks": blocks})
    closed = b"".join([*records, journal.record(KINDS["segment end"], TIME, end)])
    yield _segment("a closed segment", closed)
    yield _segment("a live segment", b"".join(records))
    yield _segment("a live segment with a torn end", b"".join(records)[:-5])
    yield _segment("a live segment that ends in zeros", b"".join(records) + bytes(64))
    yield _segment("damage in the middle", closed.replace(unknown, unknown[:-1] + b"?"))


def _segment(name: str, data: bytes) -> Vector:
    expected = [
        {**{key: r[key] for key in ("offset", "size", "kind", "status")}, "time": str(r["time"])}
        for r in journal.records(data)
    ]
    return {"name": name, "kind": "segment", "input": data.hex(), "expected": expected}


def _with(kind: str, fields: Fields, cell: str, *value: Any) -> bytes:
    """The body of `fields` with another value of one cell, or without it."""
    whole = journal.body(kind, fields)
    prefix = 5 if kind == "key update" else 4 if kind in PREFIX else 0
    map_end = len(whole) - (4 if kind == "segment end" else 0)
    cells = cbor.decode_payload(whole[prefix:map_end])
    del cells[KEYS[cell]]
    if value:
        cells[KEYS[cell]] = value[0]
    data = whole[:prefix] + cbor.encode_payload(cells)
    return data + (9 + len(data) + 4).to_bytes(4) if kind == "segment end" else data


def _body(name: str, kind: str, body: bytes, fields: Fields) -> Vector:
    return {
        "name": f"a body: {name}",
        "kind": "body",
        "of": kind,
        "input": body.hex(),
        "expected": plain(fields),
    }


def plain(value: Any) -> Any:
    """As JSON has it: bytes in hex, integers beyond 2^53 as text."""
    match value:
        case bytes():
            return value.hex()
        case int() if abs(value) > 2**53:
            return str(value)
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


def _wrong(name: str, kind: str, body: bytes) -> Vector:
    why = _refused(lambda data: journal.read_body(kind, data), body)
    return _failing(f"no body: {name}", "body", why, of=kind, input=body.hex())


def _failing(name: str, kind: str, why: str, **fields: Any) -> Vector:
    return {"name": name, "kind": kind, **fields, "fails": "malformed", "why": why}


def _refused(read: Any, data: Any) -> str:
    try:
        read(data)
    except Malformed as refusal:
        return str(refusal)
    raise ValueError(f"it is read: {data!r}")
