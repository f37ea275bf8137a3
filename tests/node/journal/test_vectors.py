"""The checked-in vectors of the journal's format, compared with records, bodies and names."""

from typing import Any

import pytest

from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.record_types import (
    EVENT,
    EVENT_HEAD,
    encode_block,
    parse_block,
    parse_event_head,
)
from parley._node.journal.records import OK, encode_record, read_records
from parley._node.journal.segments import parse_name, run_start
from tests.node.journal.body_descriptions import BODIES, described
from tests.vectors.load import Vector, of_kind, unhex, vectors

KINDS = {name: number for number, name in keys.KIND_NAMES.items()}


def parse(kind: str, body: bytes) -> Any:
    """Parse with the parser of this kind; raise JournalFormatError."""
    if kind == "block":
        return parse_block(body)
    if kind == "event":
        return parse_event_head(body)
    return BODIES[kind].parse(body)


@vectors("journal", of_kind("start"))
def test_the_start_of_a_run(vector: Vector) -> None:
    assert run_start(int(vector["time"])) == vector["expected"]


@vectors("journal", of_kind("name"), fails=False)
def test_a_name(vector: Vector) -> None:
    name = parse_name(vector["input"])
    assert name is not None
    assert name._asdict() == vector["expected"]
    assert str(name) == vector["input"]
    assert name.stem == vector["input"].partition(".")[0]


@vectors("journal", of_kind("name"), fails=True)
def test_no_name(vector: Vector) -> None:
    assert parse_name(vector["input"]) is None


@vectors("journal", of_kind("record"), fails=False)
def test_a_record(vector: Vector) -> None:
    kind, time, body = vector["number"], int(vector["time"]), unhex(vector["body"])
    data = encode_record(kind, time, body)
    assert data.hex() == vector["expected"]
    assert list(read_records(data)) == [(0, len(data), kind, time, body, OK)]


@vectors("journal", of_kind("record"), fails=True)
def test_no_record(vector: Vector) -> None:
    data = unhex(vector["input"])
    [record] = read_records(b"before" + data, start=6, offset=100)
    assert (record.offset, record.size, record.status) == (106, len(data), vector["why"])


@vectors("journal", of_kind("segment"))
def test_a_segment(vector: Vector) -> None:
    found = [
        {
            "offset": r.offset,
            "size": r.size,
            "kind": r.kind,
            "status": r.status,
            "time": str(r.time),
        }
        for r in read_records(unhex(vector["input"]))
    ]
    assert found == vector["expected"]


@vectors("journal", of_kind("body"), fails=False)
def test_a_body(vector: Vector) -> None:
    kind, body, expected = vector["of"], unhex(vector["input"]), dict(vector["expected"])
    parsed = parse(kind, body)
    if kind == "block":
        assert dict(zip(("number", "live"), parsed, strict=True)) == expected
        assert encode_block(*parsed) == body
    elif kind == "event":
        assert (*parsed, body[EVENT_HEAD:].hex()) == tuple(expected.values())
        assert EVENT.pack(*parsed) == body[:EVENT_HEAD]
    else:
        assert described(parsed) == expected
        assert (parsed.encode() == body) is not vector.get("read_only", False)


@vectors("journal", of_kind("body"), fails=True)
def test_no_body(vector: Vector) -> None:
    with pytest.raises(JournalFormatError):
        parse(vector["of"], unhex(vector["input"]))


def test_every_kind_has_vectors() -> None:
    assert {*BODIES, "block", "event"} == set(KINDS)
