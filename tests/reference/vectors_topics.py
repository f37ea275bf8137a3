"""Vectors for topics that remember (section 18): where a subscriber begins, what a reader takes."""

from typing import Any

from tests.reference import cbor
from tests.reference.remembering import GREATEST, NOTES, NOTIFY, Malformed, Publisher, Reader
from tests.reference.wire import CELLS

Vector = dict[str, Any]
EPOCH, OTHER = bytes.fromhex("a1b2c3d4e5f60718"), bytes(8)
TOPIC = "prices"


def topic_vectors() -> dict[str, Any]:
    """topics.json."""
    return {
        "about": "Topics that remember. `begin`: a publisher that keeps the notes `first` to "
        "`last` is given a Subscribe. `read`: a reader that had the notes up to `after` is given "
        "the Result and then events, as [subcategory, payload].",
        "section": "18",
        "vectors": [*_begin_vectors(), *_read_vectors()],
    }


def _payload(**cells: Any) -> bytes:
    return cbor.encode_payload({CELLS[name]: value for name, value in cells.items()})


def _begin_vectors() -> list[Vector]:
    def subscribe(**cells: Any) -> bytes:
        return _payload(topic=TOPIC, **cells)

    at = {name: subscribe(topic_epoch=EPOCH, number=n) for name, n in _PLACES.items()}
    given = {
        **{f"a position {name}": (3, 7, payload) for name, payload in at.items()},
        "no position": (3, 7, subscribe()),
        "no position, and nothing was published": (1, 0, subscribe()),
        "no position, and nothing is kept": (8, 7, subscribe()),
        "a position of another epoch": (3, 7, subscribe(topic_epoch=OTHER, number=5)),
        "number 0, and all is kept": (1, 7, subscribe(topic_epoch=EPOCH, number=0)),
        "an epoch without a number": (3, 7, subscribe(topic_epoch=EPOCH)),
        "a number without an epoch": (3, 7, subscribe(number=5)),
        "an epoch of 7 bytes": (3, 7, subscribe(topic_epoch=EPOCH[:7], number=5)),
        "an epoch of 9 bytes": (3, 7, subscribe(topic_epoch=bytes(9), number=5)),
        "an epoch that is text": (3, 7, subscribe(topic_epoch="a1b2c3d4", number=5)),
        "a number below 0": (3, 7, subscribe(topic_epoch=EPOCH, number=-1)),
        "a number that is a fraction": (3, 7, subscribe(topic_epoch=EPOCH, number=5.0)),
        "a number that is a boolean": (3, 7, subscribe(topic_epoch=EPOCH, number=True)),
    }
    vectors: list[Vector] = []
    for name, (first, last, payload) in given.items():
        vector = {
            "name": f"begin: {name}",
            "kind": "begin",
            "epoch": EPOCH.hex(),
            "first": first,
            "last": last,
            "subscribe": payload.hex(),
        }
        try:
            result = Publisher(EPOCH, first, last).subscribed(payload)
        except Malformed as error:
            vectors.append({**vector, "fails": "malformed", "why": str(error)})
        else:
            vectors.append({**vector, "expected": {**result, "topic_epoch": EPOCH.hex()}})
    return vectors


_PLACES = {
    "at the end": 7,
    "with more to come": 4,
    "just before what is kept": 2,
    "before what is kept": 1,
    "above the last": 8,
}

_WHOLE = {"topic_epoch": EPOCH, "number": 5, "recovered": True}
_ANEW = {"topic_epoch": EPOCH, "number": 5, "recovered": False}


def _one(data: Any, **cells: Any) -> tuple[int, bytes]:
    return NOTIFY, _payload(data=data, **cells)


def _several(*notes: Any, **cells: Any) -> tuple[int, bytes]:
    return NOTES, _payload(notes=list(notes), **cells)


# By name: the notes accepted before, the Result's cells, the events.
_READ: dict[str, tuple[tuple[bytes, int] | None, dict[str, Any], list[tuple[int, bytes]]]] = {
    "each further note is one more": (None, _ANEW, [_one(6, number=6), _several(7, 8), _one(9)]),
    "it goes on": ((EPOCH, 5), _WHOLE, [_several(6, 7, number=6)]),
    "what was taken is dropped": ((EPOCH, 7), _WHOLE, [_several(6, 7, 8, number=6), _one(9)]),
    "a gap between two events": (None, _ANEW, [_one(6, number=6), _one(9, number=9), _one(10)]),
    "a gap at the beginning": ((EPOCH, 2), _ANEW, [_one(6, number=6)]),
    "another epoch": ((OTHER, 100), _ANEW, [_one(6, number=6)]),
    "a number sets the count downward": (
        None,
        _ANEW,
        [_several(6, 7, 8, number=6), _one(6, number=6), _several(7, 8, 9)],
    ),
    "no notes in Notes": (None, _ANEW, [_several(number=9), _one(9)]),
    "the greatest number": (None, _ANEW, [_one("last", number=GREATEST)]),
    "a topic that does not remember": (None, {}, [_one(1, number=9), _several(2, 3)]),
    "all that is missing was replaced": ((EPOCH, 5), _WHOLE, [_one(9, number=9, replaced=3)]),
    "some of what is missing was replaced": (
        None,
        _ANEW,
        [_one(9, number=9, replaced=2), _several(11, 12, number=11, replaced=1), _one(13)],
    ),
    "the number was replaced that was taken": (
        (EPOCH, 7),
        _WHOLE,
        [_several(8, 9, number=8, replaced=2), _one(12, number=12)],
    ),
    "replaced of a topic that does not remember": (None, {}, [_one(1, number=9, replaced=3)]),
    "replaced as far as there are numbers": (None, _ANEW, [_one(7, number=7, replaced=6)]),
    "replaced without a number": (None, _ANEW, [_one(6, number=6), _one(7, replaced=1)]),
    "replaced that is 0": (None, _ANEW, [_one(6, number=6, replaced=0)]),
    "replaced that is no less than the number": (None, _ANEW, [_one(7, number=7, replaced=7)]),
    "replaced that is text": (None, _ANEW, [_one(7, number=7, replaced="1")]),
    "replaced that is a boolean, in Notes": (None, _ANEW, [_several(7, number=7, replaced=True)]),
    "number 0": (None, _ANEW, [_one(6, number=0)]),
    "number 0 in Notes": (None, _ANEW, [_several(6, number=0)]),
    "a number that is text": (None, _ANEW, [_one(6, number="6")]),
    "a number below 0": (None, _ANEW, [_one(6, number=-6)]),
    "a note above the greatest number": (None, _ANEW, [_several(1, 2, number=GREATEST)]),
    "one more than the greatest": (None, _ANEW, [_one(1, number=GREATEST), _one(2)]),
    "notes that are no array": (None, _ANEW, [(NOTES, _payload(notes=6, number=6))]),
    "no notes at all": (None, _ANEW, [(NOTES, _payload(number=6))]),
    "a Result without a number": (None, {"topic_epoch": EPOCH, "recovered": True}, []),
    "a Result without an epoch": (None, {"number": 5, "recovered": True}, []),
    "a Result with a number alone": (None, {"number": 5}, []),
    "a Result that does not say recovered": (None, {"topic_epoch": EPOCH, "number": 5}, []),
    "a Result whose recovered is a number": (None, {**_ANEW, "recovered": 1}, []),
}


def _read_vectors() -> list[Vector]:
    vectors: list[Vector] = []
    for name, (after, cells, events) in _READ.items():
        result = _payload(code=0, stream=2, **cells)
        vector = {
            "name": f"read: {name}",
            "kind": "read",
            "after": None if after is None else [after[0].hex(), after[1]],
            "result": result.hex(),
            "events": [[kind, payload.hex()] for kind, payload in events],
        }
        try:
            reader = Reader(after, result)
            for kind, payload in events:
                reader.take(kind, payload)
        except Malformed as error:
            vectors.append({**vector, "fails": "malformed", "why": str(error)})
        else:
            expected: Vector = {"taken": reader.taken, "gaps": _integer(reader.gaps)}
            if reader.remembers:
                expected["number"] = _integer(reader.last)
            vectors.append({**vector, "expected": expected})
    return vectors


def _integer(value: int) -> int | str:
    return str(value) if value > 2**53 else value
