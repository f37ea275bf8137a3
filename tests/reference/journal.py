"""A second implementation of docs/journal.md: records, bodies and names of a journal's files.

Written from that page alone. Values whose type or size differs from the page are Malformed. Fields
are dicts by the names in its tables, with `_` for each blank.
"""

import datetime
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.reference import cbor

Fields = dict[str, Any]

_KIND_NAMES: Final = (
    *("segment", "block", "checkpoint", "session start", "secret", "event", "key update"),
    *("session end", "segment end", "parted", "resumed", "tunnel"),
)
KINDS: Final = {name: 1 + number for number, name in enumerate(_KIND_NAMES)}
_KEY_NAMES: Final = (
    *("format", "version", "node_id", "start", "number", "auditors", "software", "session_id"),
    *("initiator", "local_keys", "remote_keys", "local_role", "remote_role", "address", "suite"),
    *("commit", "t1", "responder_proof", "initiator_proof", "seal_events", "seal_delay", "th1"),
    *("th2", "started", "directions", "secrets", "labels", "generation", "boxes", "epoch"),
    *("after_offer", "after_answer", "rekey_commit", "code", "remote", "text", "chains"),
    *("places", "records", "blocks", "cut", "resumption", "trace", "hop", "length", "before"),
    *("after", "began", "ended", "forward", "back"),
)
KEYS: Final = {name: 256 + number for number, name in enumerate(_KEY_NAMES)}
DIRECTION: Final = ("chain", "place", "epoch", "generation", "updates", "unsealed", "counters")
GENERATION: Final = ("generation", "after_offer", "after_answer", "rekey_commit", "boxes")
OF_SESSION: Final = (
    *("session_id", "initiator", "local_keys", "remote_keys", "local_role", "remote_role"),
    *("address", "suite", "commit", "seal_events", "seal_delay"),
)
# The cells of each kind's map; those in brackets may be absent.
CELLS: Final = {
    "segment": ("format", "version", "node_id", "start", "number", "auditors", "software"),
    "checkpoint": (*OF_SESSION, "th1", "th2", "started", "directions", "secrets", "[labels]"),
    "session start": (*OF_SESSION, "t1", "responder_proof", "initiator_proof"),
    "secret": ("generation", "boxes"),
    "key update": ("epoch", "[generation]", "[after_offer]", "[after_answer]", "[rekey_commit]"),
    "session end": ("code", "remote", "[text]", "chains", "places"),
    "segment end": ("records", "blocks", "[cut]"),
    "parted": ("[text]",),
    "resumed": ("resumption",),
    "tunnel": (
        *("trace", "hop", "length", "before", "after", "began", "ended", "forward", "back"),
    ),
}
# The bytes before the map, or in its place.
PREFIX: Final = {
    "block": ("number", "live"),
    "checkpoint": ("session",),
    "session start": ("session",),
    "secret": ("session",),
    "event": ("session", "direction"),
    "key update": ("session", "direction"),
    "session end": ("session",),
    "parted": ("session",),
    "resumed": ("session",),
}


class Malformed(Exception):
    """The bytes don't match the page; with a reason for people."""


# Records.


def record(kind: int, time: int, body: bytes) -> bytes:
    """A record's bytes."""
    content = struct.pack(">BQ", kind, time) + body
    return struct.pack(">II", len(content), zlib.crc32(content)) + content


def records(data: bytes) -> Iterator[Fields]:
    """Yield each record of a segment. The last one may be `bad-length` or `torn`, with all
    remaining bytes.
    """
    at = 0
    while at < len(data):
        left = len(data) - at
        found: Fields = {"offset": at, "size": left, "kind": 0, "time": 0, "status": "torn"}
        if left >= 8:
            length, crc = struct.unpack_from(">II", data, at)
            if not 9 <= length <= 2**26 + 2**16:
                found["status"] = "bad-length"
            elif left >= 8 + length:
                content = data[at + 8 : at + 8 + length]
                found["kind"], found["time"] = struct.unpack_from(">BQ", content)
                found |= {"size": 8 + length, "body": content[9:]}
                found["status"] = "ok" if zlib.crc32(content) == crc else "bad-crc"
        yield found
        at += found["size"]


# Bodies.


def body(kind: str, fields: Fields) -> bytes:
    """The body of a kind with these fields."""
    data = b"".join(
        struct.pack(">B" if name == "direction" else ">I", fields[name])
        for name in PREFIX.get(kind, ())
    )
    if kind == "event":
        return data + bytes(fields["wire"])
    if kind == "block":
        return data
    cells = {}
    for name in CELLS[kind]:
        bare = name.strip("[]")
        if fields.get(bare) is not None:
            pack = _PACK.get(bare)
            cells[KEYS[bare]] = pack(fields[bare]) if pack else fields[bare]
    data += cbor.encode_payload(cells)
    if kind == "segment end":
        data += struct.pack(">I", 9 + len(data) + 4)
    return data


def read_body(kind: str, data: bytes) -> Fields:
    """The fields of a body; raises Malformed. An absent cell is None."""
    try:
        return _read_body(kind, data)
    except (cbor.LbmError, struct.error) as error:
        raise Malformed(str(error)) from error


def _read_body(kind: str, data: bytes) -> Fields:
    fields: Fields = {}
    rest = data
    for name in PREFIX.get(kind, ()):
        form = ">B" if name == "direction" else ">I"
        (fields[name],) = struct.unpack_from(form, rest)
        rest = rest[struct.calcsize(form) :]
    if fields.get("direction", 0) > 1:
        raise Malformed("a direction is 0 or 1")
    if kind == "event":
        return fields | {"wire": rest}
    if kind == "block":
        if rest:
            raise Malformed("a block is two numbers")
        return fields
    if kind == "segment end":
        if len(rest) < 4 or rest[-4:] != struct.pack(">I", 9 + len(data)):
            raise Malformed("the last four bytes repeat the length")
        rest = rest[:-4]
    cells = cbor.decode_payload(rest)
    for name in CELLS[kind]:
        bare = name.strip("[]")
        if KEYS[bare] in cells:
            fields[bare] = _READ[bare](cells[KEYS[bare]])
        elif bare == name:
            raise Malformed(f"{name} is missing")
        else:
            fields[bare] = None
    if kind == "key update":
        of_rekey = {fields[name] is None for name in GENERATION[:4]}
        if len(of_rekey) > 1:
            raise Malformed("a rekey's four are there together")
        if fields["generation"] == 0:
            raise Malformed("generation 0 is the handshake's")
    if kind == "tunnel" and fields["hop"] + 2 > fields["length"]:
        raise Malformed("nobody is behind the last of a path")
    return fields


# Types.


def _a(type_: type[Any], size: int | None = None) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not type_ or (size is not None and len(value) != size):
            raise Malformed(f"no {type_.__name__}, or of a wrong size")
        return value

    return read


def _uint(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise Malformed("no unsigned integer")
    return value


def _count(value: Any) -> int:
    """Return a number of a checkpoint or an end, which must be below 2^48."""
    if _uint(value) >= 2**48:
        raise Malformed("a count that no session reaches")
    return int(value)


def _resumption(value: Any) -> int:
    """Which of a session's resumptions, from 1."""
    if not _count(value):
        raise Malformed("resumptions are counted from 1")
    return int(value)


def _length(value: Any) -> int:
    """How many ids a path has."""
    if not 2 <= _uint(value) <= 8:
        raise Malformed("a path has 2 to 8 ids")
    return int(value)


def _moment(value: Any) -> int:
    """A time of a tunnel."""
    if _uint(value) >= 2**63:
        raise Malformed("a time that no table holds")
    return int(value)


def _hash(value: Any) -> bytes:
    """Return a hash value of at most 64 bytes; the suite determines the hash."""
    if len(_a(bytes)(value)) > 64:
        raise Malformed("longer than any hash")
    return bytes(value)


def _constant(wanted: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value != wanted or type(value) is not type(wanted):
            raise Malformed(f"not {wanted!r}")
        return value

    return read


def _array(of: Callable[[Any], Any], count: int | None = None) -> Callable[[Any], list[Any]]:
    def read(value: Any) -> list[Any]:
        if type(value) is not list or (count is not None and len(value) != count):
            raise Malformed("no array, or of a wrong number")
        return [of(item) for item in value]

    return read


def _packed(form: str) -> Callable[[Any], list[Any]]:
    def read(value: Any) -> list[Any]:
        items = list(struct.iter_unpack(form, _a(bytes)(value)))
        return [item[0] if len(item) == 1 else list(item) for item in items]

    return read


def _entry(names: tuple[str, ...], value: Any) -> Fields:
    """Items by name; more of them are of a later version, like unknown keys."""
    items = _array(lambda item: item)(value)
    if len(items) < len(names):
        raise Malformed("an entry is too short")
    return dict(zip(names, items, strict=False))


def _direction(value: Any) -> Fields:
    entry = _entry(DIRECTION, value)
    for name, item in entry.items():
        if name not in ("chain", "counters"):
            _count(item)
    _hash(entry["chain"])
    counters = _packed(">IQ")(entry["counters"])
    if len({stream for stream, _ in counters}) < len(counters):
        raise Malformed("a stream has one counter")
    return entry | {"counters": counters}


def _generation(value: Any) -> Fields:
    entry = _entry(GENERATION, value)
    for name in GENERATION[1:4]:
        read = _hash if _count(entry["generation"]) else _a(type(None))
        read(entry[name])
    _boxes(entry["boxes"])
    return entry


def _box(value: Any) -> list[bytes]:
    box = _array(_a(bytes), 2)(value)
    _a(bytes, 32)(box[0])
    return box


_boxes = _array(_box)
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("local_keys", "remote_keys"), _a(list)),
    **dict.fromkeys(("initiator", "remote"), _a(bool)),
    **dict.fromkeys(("software", "local_role", "remote_role", "address", "text"), _a(str)),
    **dict.fromkeys(("node_id", "session_id", "before", "after"), _a(bytes, 32)),
    **dict.fromkeys(("t1", "responder_proof", "initiator_proof", "labels"), _a(bytes)),
    **dict.fromkeys(("commit", "th1", "th2", "after_offer", "after_answer"), _hash),
    **dict.fromkeys(("start", "number", "seal_events", "seal_delay", "started"), _uint),
    **dict.fromkeys(("generation", "epoch", "records", "cut"), _uint),
    "format": _constant("parley1 journal"),
    "version": _constant(1),
    "rekey_commit": _hash,
    "resumption": _resumption,
    "trace": _a(bytes, 16),
    "hop": _uint,
    "length": _length,
    **dict.fromkeys(("began", "ended"), _moment),
    **dict.fromkeys(("forward", "back"), _count),
    "code": _a(int),
    "auditors": _array(_a(bytes, 32)),
    "suite": _array(_a(str), 5),
    "directions": _array(_direction, 2),
    "secrets": _array(_generation),
    "boxes": _boxes,
    "chains": _array(_hash, 2),
    "places": _array(_count, 2),
    "blocks": _packed(">Q"),
}
_PACK: Final[dict[str, Callable[[Any], Any]]] = {
    "directions": lambda entries: [
        [
            *(entry[name] for name in DIRECTION[:6]),
            b"".join(struct.pack(">IQ", *counter) for counter in entry["counters"]),
        ]
        for entry in entries
    ],
    "secrets": lambda entries: [[entry[name] for name in GENERATION] for entry in entries],
    "blocks": lambda offsets: b"".join(struct.pack(">Q", offset) for offset in offsets),
}


# Names of files.


def start_text(time: int) -> str:
    """`<start>` of a run that began at `time`, in ns."""
    began = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=time // 1000)
    return began.strftime("%Y%m%dT%H%M%S%fZ")


def read_name(name: str) -> Fields:
    """Return the parts of a segment's name. Raises Malformed."""
    found = re.fullmatch(
        r"([a-z2-7]{52})-([0-9]{8}T[0-9]{12}Z)-([0-9]{8})\.pjl(|\.open|\.torn)", name
    )
    if not found:
        raise Malformed("not the name of a segment")
    node, start, number, state = found.groups()
    try:
        datetime.datetime.strptime(start, "%Y%m%dT%H%M%S%fZ")
    except ValueError:
        raise Malformed("a time that there is not") from None
    return {"node": node, "start": start, "number": int(number), "state": f".pjl{state}"}
