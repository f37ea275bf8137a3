"""Target `journal`: segments, bodies of records and names of files (docs/journal.md).

The reference accepts and rejects the same input, with the same result. The input is a byte for its
kind, and a segment, a name, or the body of a kind.
"""

from collections.abc import Callable
from io import BytesIO
from typing import Final

from parley._node.journal import keys
from parley._node.journal.record_types import (
    EVENT,
    EVENT_HEAD,
    encode_block,
    parse_block,
    parse_event_head,
)
from parley._node.journal.records import encode_record, read_records
from parley._node.journal.segments import _walk_heads, parse_name
from tests.fuzz.allowed import ALLOWED
from tests.node.journal.body_descriptions import BODIES, described
from tests.reference import journal
from tests.reference.journal import Fields, Malformed
from tests.reference.vectors_journal import plain

MAX_SIZE: Final = 4096


def fuzz(data: bytes) -> None:
    """Read the input as the kind in its first byte."""
    reader = READERS[data[0] % len(READERS)] if data else READERS[0]
    reader(data[1:])


def _read_segment(data: bytes) -> None:
    found, whole, blocks = list(read_records(data)), 0, []
    expected = list(journal.records(data))
    names = ("offset", "size", "kind", "time", "status")
    assert [{name: getattr(r, name) for name in names} for r in found] == [
        {name: fields[name] for name in names} for fields in expected
    ]
    for record in found:
        end = record.offset + record.size
        if record.status == "ok":
            again = encode_record(record.kind, record.time, record.body)
            assert again == data[record.offset : end]
        if record.status in ("ok", "bad-crc"):
            whole = end
            blocks += [record.offset] * (record.kind == keys.BLOCK)
    assert sum(record.size for record in found) == len(data)
    heads = _walk_heads(BytesIO(data), 0, len(data))
    status = found[-1].status if whole < len(data) else "ok"
    assert (heads.end, heads.blocks, heads.status) == (whole, tuple(blocks), status)


def _read_name(data: bytes) -> None:
    name = data.decode(errors="replace")
    try:
        expected = journal.read_name(name)
    except Malformed:
        expected = None
    found = parse_name(name)
    if found is None or "/" in name:  # a path has a name too
        assert expected is None
    else:
        assert found._asdict() == expected
        assert str(found) == name


def _of(kind: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        try:
            expected: Fields | None = journal.read_body(kind, data)
        except Malformed:
            expected = None
        try:
            found = _parsed(kind, data)
        except ALLOWED["journal"]:
            assert expected is None, "the reference takes it"
            return
        assert expected is not None, "the reference refuses it"
        there = {name: value for name, value in expected.items() if value is not None}
        # An empty text and zero bytes cut are equivalent to no value.
        there = {
            name: v for name, v in there.items() if (name, v) not in (("text", ""), ("cut", 0))
        }
        assert _sorted(found) == _sorted(plain(there))

    return read


def _parsed(kind: str, data: bytes) -> Fields:
    """Return the decoded body, which must survive encoding unchanged."""
    if kind == "block":
        number, live = parse_block(data)
        assert encode_block(number, live) == data
        return {"number": number, "live": live}
    if kind == "event":
        session, direction = parse_event_head(data)
        assert EVENT.pack(session, direction) == data[:EVENT_HEAD]
        return {"session": session, "direction": direction, "wire": data[EVENT_HEAD:].hex()}
    parsed = BODIES[kind].parse(data)
    body = parsed.encode()
    assert BODIES[kind].parse(body).encode() == body
    found: Fields = described(parsed)
    return found


def _sorted(fields: Fields) -> str:
    """Make a value comparable, including NaN."""
    return repr(sorted(fields.items()))


READERS: Final[tuple[Callable[[bytes], None], ...]] = (
    _read_segment,
    _read_name,
    *(_of(kind) for kind in journal.KINDS),
)
